# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint in memory, without their pages counting for long."""

import mmap
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound
from tokenlight.checkpoint import TensorEntry
from tokenlight.kernels import Format
from tokenlight.weights.scaled import read_scaled, scaled_format
from tokenlight.weights.stored import STORED, StoredTensor


def format_of(entry: TensorEntry) -> Format:
    """What a tensor is read as."""
    return STORED[entry.format] if entry.scaled is None else scaled_format(entry)


class MappedFiles:
    """Maps each file once; `release` gives a tensor's pages back."""

    def __init__(self, layout: Literal["gguf", "huggingface"]) -> None:
        self._layout: Literal["gguf", "huggingface"] = layout
        self._views: dict[Path, mmap.mmap] = {}

    def read(self, entry: TensorEntry) -> StoredTensor:
        """The tensor's bytes where they lie in the map, which lives while they are held.

        A matrix whose scales lie apart is put together, in memory of its own.

        Raises:
            CheckpointNotFound: the file cannot be opened any more.
            CheckpointCorrupt: it is not the file whose header was read.
        """
        if entry.scaled is not None:
            rows, stored_format = read_scaled(entry, entry.scaled, self._bytes)
        else:
            num_rows = entry.shape[0] if len(entry.shape) > 1 else 1
            rows, stored_format = self._bytes(entry).view(num_rows, -1), format_of(entry)
        return StoredTensor(
            name=entry.name,
            shape=entry.shape,
            format=stored_format,
            layout=self._layout,
            rows=rows,
        )

    def _bytes(self, entry: TensorEntry) -> Tensor:
        if not entry.num_bytes:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(
            self._view(entry),
            dtype=torch.uint8,
            count=entry.num_bytes,
            offset=entry.offset_bytes,
        )

    def _view(self, entry: TensorEntry) -> mmap.mmap:
        if entry.path not in self._views:
            try:
                with entry.path.open("rb") as file:
                    # Copy-on-write, which torch takes without warning; nothing writes to it.
                    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError) as fault:  # an empty file cannot be mapped
                raise CheckpointNotFound(f"{entry.path}: cannot be read: {fault}") from fault
            self._views[entry.path] = view
        view = self._views[entry.path]
        if entry.offset_bytes + entry.num_bytes > len(view):
            raise CheckpointCorrupt(
                f"{entry.path}: has become shorter while it was read; leave it alone and try again"
            )
        return view

    def release(self, entry: TensorEntry) -> None:
        """Drop the tensor's pages from this process; a later read brings them back."""
        if entry.scaled is not None:
            for part in entry.scaled.entries:
                self.release(part)
            return
        start = -(-entry.offset_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (entry.offset_bytes + entry.num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            self._views[entry.path].madvise(mmap.MADV_DONTNEED, start, end - start)
