# SPDX-License-Identifier: Apache-2.0
"""What the launchers of decode attention share, as `decode.cuh` has it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from torch import Tensor

STAGE_TOKENS, TEAM_WARPS = 64, 4
SHORT_CHUNKS = 8


class Params(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "kv_lens", "block_table", "slots")),
        *((name, ctypes.c_void_p) for name in ("sinks", "partials", "counters")),
        *((name, ctypes.c_int) for name in ("num_requests", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int) for name in ("group", "block_shift", "num_blocks", "q_stride")),
        *((name, ctypes.c_int) for name in ("table_stride", "queries_per_tile", "rows_per_tile")),
        *(("window", ctypes.c_int), ("scale", ctypes.c_float), ("softcap", ctypes.c_float)),
        ("chunks_shift", ctypes.c_int),
    )


class Batch(NamedTuple):
    """As the contract has it."""

    q_THd: Tensor
    k_cache_BKPd: Tensor
    v_cache_BKPd: Tensor
    query_starts: Tensor
    kv_lens: Tensor
    block_table: Tensor
    slots: Tensor
    sinks_H: Tensor | None
    scale: float
    window: int
    softcap: float


class Tiling(NamedTuple):
    """How many queries a tile holds; its rows are queries of each head of a kv head."""

    rows: int
    """Of the kernel: 8, 16 or 32."""
    queries_per_tile: int
    rows_per_tile: int
    span_tokens: int
    is_decode: bool

    def most(self, num_tokens: int, num_requests: int) -> int:
        """Tiles of so many queries, wherever they lie."""
        if self.is_decode:
            return num_requests
        # A tile ends where the length of chunks changes, too.
        spans = num_tokens // self.span_tokens + 2 * num_requests
        return num_tokens // self.queries_per_tile + spans


def tiling(batch: Batch, chunks_shift: int) -> Tiling:
    """One query per request is known from the shapes; else a tile holds what its rows can."""
    num_tokens, num_heads, _ = batch.q_THd.shape
    num_requests, group = batch.slots.shape[0], num_heads // batch.k_cache_BKPd.shape[1]
    is_decode = num_tokens == num_requests
    needed = group if is_decode else group * -(-num_tokens // max(num_requests, 1))
    rows = next((r for r in (8, 16) if needed <= r), 32)
    queries = 1 if is_decode else max(1, rows // group)
    span_tokens = STAGE_TOKENS * min(1 << chunks_shift, SHORT_CHUNKS)
    return Tiling(rows, queries, group * queries, span_tokens, is_decode)


def params(batch: Batch, out_THd: Tensor, tiles: Tiling, chunks_shift: int) -> Params:
    """Of the whole batch, without memory of partial sums."""
    _, num_heads, _ = batch.q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = batch.k_cache_BKPd.shape
    return Params(
        *(batch.q_THd.data_ptr(), batch.k_cache_BKPd.data_ptr(), batch.v_cache_BKPd.data_ptr()),
        *(out_THd.data_ptr(), batch.query_starts.data_ptr(), batch.kv_lens.data_ptr()),
        *(batch.block_table.data_ptr(), batch.slots.data_ptr()),
        None if batch.sinks_H is None else batch.sinks_H.data_ptr(),
        *(None, None, batch.slots.shape[0], num_heads, num_kv_heads),
        *(num_heads // num_kv_heads, block_tokens.bit_length() - 1, num_blocks),
        batch.q_THd.stride(0),
        *(batch.block_table.stride(0), tiles.queries_per_tile, tiles.rows_per_tile),
        *(batch.window, batch.scale, batch.softcap, chunks_shift),
    )
