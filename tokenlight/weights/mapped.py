# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint in memory, without their pages counting for long."""

import mmap
from pathlib import Path
from typing import Literal

import torch

from tokenlight.checkpoint import TensorEntry
from tokenlight.kernels import FORMATS
from tokenlight.weights.stored import StoredTensor


class MappedFiles:
    """Maps each file once; `release` gives a tensor's pages back."""

    def __init__(self, layout: Literal["gguf", "huggingface"]) -> None:
        self._layout: Literal["gguf", "huggingface"] = layout
        self._views: dict[Path, mmap.mmap] = {}

    def read(self, entry: TensorEntry) -> StoredTensor:
        """The tensor's bytes where they lie in the map, which lives while they are held."""
        if entry.path not in self._views:
            with entry.path.open("rb") as file:
                # Copy-on-write, which torch takes without warning; nothing writes to it.
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._views[entry.path] = view
        flat = torch.frombuffer(
            self._views[entry.path],
            dtype=torch.uint8,
            count=entry.num_bytes,
            offset=entry.offset_bytes,
        )
        num_rows = entry.shape[0] if len(entry.shape) > 1 else 1
        return StoredTensor(
            name=entry.name,
            shape=entry.shape,
            format=FORMATS[entry.format],
            layout=self._layout,
            rows=flat.view(num_rows, -1),
        )

    def release(self, entry: TensorEntry) -> None:
        """Drop the tensor's pages from this process; a later read brings them back."""
        start = -(-entry.offset_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (entry.offset_bytes + entry.num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            self._views[entry.path].madvise(mmap.MADV_DONTNEED, start, end - start)
