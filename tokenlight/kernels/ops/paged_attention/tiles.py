# SPDX-License-Identifier: Apache-2.0
"""What the Triton kernel is compiled for: numbers, chosen by shapes and the GPU's shared memory."""

from __future__ import annotations

from typing import NamedTuple

import torch

HOPPER_SHARED_BYTES = 227 << 10
"""That a block of an H100 or H200 may have."""
# The kernel's own, beside queries, keys and values.
_OTHER_SHARED_BYTES = 2 << 10


class Tiles(NamedTuple):
    """Sizes of a launch. Of those with the same `keys`, a row has the same bits in all."""

    rows: int
    """Queries and heads of a tile; a multiple of the 64 rows of a Hopper matrix instruction."""
    keys: int
    """At a time."""
    num_warps: int
    num_stages: int
    """Keys and values are kept in this many buffers: one is multiplied, the others arrive."""

    def fitting(self, head_dim: int, element_bytes: int, shared_bytes: int) -> Tiles:
        """With as many of these stages as shared memory holds, but one at least."""
        row_bytes = head_dim * element_bytes
        room = shared_bytes - _OTHER_SHARED_BYTES - self.rows * row_bytes
        most = room // (2 * self.keys * row_bytes)
        return self._replace(num_stages=max(1, min(self.num_stages, most)))


DECODE = Tiles(rows=64, keys=64, num_warps=4, num_stages=2)
CHUNKED = Tiles(rows=128, keys=64, num_warps=8, num_stages=3)
PREFILL = Tiles(rows=128, keys=128, num_warps=8, num_stages=3)


def broad(dtype: torch.dtype) -> Tiles:
    """For heads of more than 128, whose sums take the registers of eight warps."""
    if dtype is torch.float32:
        return Tiles(rows=64, keys=32, num_warps=8, num_stages=1)
    return Tiles(rows=64, keys=64, num_warps=8, num_stages=2)
