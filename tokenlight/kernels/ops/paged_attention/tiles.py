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
    """Queries and heads of a tile; of 16 bits a multiple of the 64 of a Hopper instruction."""
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

    def of_float8(self) -> Tiles:
        """For keys that are widened on their way, which takes a stage of its own."""
        return self._replace(num_stages=self.num_stages + 1)


DECODE = Tiles(rows=64, keys=64, num_warps=4, num_stages=2)
CHUNKED = Tiles(rows=128, keys=64, num_warps=8, num_stages=3)
PREFILL = Tiles(rows=128, keys=128, num_warps=8, num_stages=3)
# Of float32, on the plain units: what a thread multiplies is written out, so that larger tiles take
# the compiler half a minute. Nothing is fetched ahead: the registers are full.
WIDE = Tiles(rows=32, keys=32, num_warps=8, num_stages=1)
# What is widened takes the registers of half of the keys.
FLOAT8_PREFILL = Tiles(rows=128, keys=64, num_warps=8, num_stages=4)


def in_chunks(dtype: torch.dtype, stored: torch.dtype, head_dim: int, *, is_prefill: bool) -> Tiles:
    """For queries of one dtype and keys of another, each chunk of keys on its own."""
    if dtype is torch.float32:
        return WIDE
    tiles = CHUNKED if is_prefill else DECODE
    if head_dim > 128:  # their sums take the registers of eight warps
        tiles = Tiles(rows=64, keys=64, num_warps=8, num_stages=2)
    return tiles.of_float8() if stored.itemsize == 1 else tiles
