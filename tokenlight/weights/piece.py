# SPDX-License-Identifier: Apache-2.0
"""What a rank holds of a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.weights.stored import StoredTensor


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, cut from its stored rows without reading a number."""

    whole: tuple[int, ...]
    """The tensor's shape."""
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    is_held: bool = True
    """False where another rank holds this share of a sum: here it is zeros."""

    @classmethod
    def all_of(cls, shape: tuple[int, ...]) -> Piece:
        return cls(shape, (0,) * len(shape), shape)

    def of(self, stored: StoredTensor) -> StoredTensor:
        """The piece, still as it is stored.

        Raises:
            UnsupportedCheckpoint: it would begin or end inside a block of a quantized format.
        """
        if self.is_held and self.lengths == self.whole:
            return stored
        block = stored.format
        start, length = self.starts[-1], self.lengths[-1]
        if start % block.block_elements or length % block.block_elements:
            raise UnsupportedCheckpoint(
                f"tensor {stored.name!r}: elements {start} to {start + length} of its rows of "
                f"{self.whole[-1]} would cut a {block} block of {block.block_elements}; split it "
                f"over fewer ranks"
            )
        rows = stored.rows.reshape(*self.whole[:-1], block.row_bytes(self.whole[-1]))
        for dim, (first, count) in enumerate(zip(self.starts[:-1], self.lengths[:-1], strict=True)):
            rows = rows.narrow(dim, first, count)
        rows = rows.narrow(-1, block.row_bytes(start), block.row_bytes(length))
        if not self.is_held:
            rows = torch.zeros_like(rows)
        return replace(stored, shape=self.lengths, rows=rows.reshape(-1, rows.shape[-1]))
