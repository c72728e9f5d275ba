# SPDX-License-Identifier: Apache-2.0
"""A tensor as a checkpoint stores it: rows of bytes in some format.

Shapes: N rows, K elements per row; a vector is one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tokenlight.checkpoint import BYTES
from tokenlight.kernels import FORMATS, Format

# Bytes that a layer makes a format of.
STORED: Mapping[str, Format] = {
    **FORMATS,
    BYTES.name: Format(BYTES.name, BYTES.block_elements, BYTES.block_bytes),
}
DENSE_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """`rows` is uint8 [..., row_bytes] and may be memory of a mapped file: read it, never keep it.

    Its rows are those of the tensor in the order of the leading dimensions, wherever they lie.
    """

    name: str
    shape: tuple[int, ...]
    format: Format
    layout: Literal["gguf", "huggingface"]
    """Whose conventions its numbers follow."""
    rows: Tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        """The numbers of a dense tensor, as a copy."""
        numbers = self.rows.view(DENSE_DTYPES[self.format.name]).reshape(self.shape)
        return numbers.to(dtype, copy=True)

    def with_split_halves(self, num_heads: int) -> StoredTensor:
        """Undo the row order of rotated neighbours: within a head, rows 0 2 4 ... then 1 3 5 ..."""
        rows = self.rows.view(self.shape[0], -1)  # of a vector each number is a row
        by_pairs = rows.view(num_heads, -1, 2, rows.shape[1])
        return StoredTensor(
            name=self.name,
            shape=self.shape,
            format=self.format,
            layout=self.layout,
            rows=by_pairs.transpose(1, 2),
        )
