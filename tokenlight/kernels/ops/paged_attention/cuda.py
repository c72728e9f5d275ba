# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import Source, num_multiprocessors, portable, workspace
from tokenlight.kernels.ops.paged_attention import cuda_prefill
from tokenlight.kernels.ops.paged_attention.contract import paged_attention

_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_THREADS = 128 + 32 + 96
_MAX_REQUESTS = 256
_MAX_QUERIES = 8
_MAX_PARTIALS_BYTES = 256 << 20
_MAX_CHUNKS_SHIFT = 7
_STAGES, _STAGE_TOKENS, _WARPS = 6, 64, 4
_STATE_BYTES = 7216
BF16 = frozenset({torch.bfloat16})


class _Params(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "kv_lens", "block_table", "slots")),
        *((name, ctypes.c_void_p) for name in ("sinks", "partials", "counters")),
        *((name, ctypes.c_int) for name in ("num_requests", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int) for name in ("block_shift", "num_blocks", "q_stride")),
        *((name, ctypes.c_int) for name in ("table_stride", "queries_per_tile", "rows_per_tile")),
        *(("window", ctypes.c_int), ("scale", ctypes.c_float), ("softcap", ctypes.c_float)),
        ("chunks_shift", ctypes.c_int),
    )


def serves(q_THd: Tensor, k_cache_BKPd: Tensor, slots: Tensor) -> bool:
    """Whether the kernel takes these shapes, and is the one to take them: few queries a request."""
    num_tokens, num_heads, head_dim = q_THd.shape
    _, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    num_requests = slots.shape[0]
    return (
        head_dim in (64, 128)
        and num_heads // num_kv_heads <= 32
        and block_tokens >= 16
        and block_tokens & (block_tokens - 1) == 0
        and q_THd.stride(0) % 8 == 0
        and (
            num_tokens == num_requests
            or (num_tokens <= _MAX_QUERIES * num_requests and num_requests <= _MAX_REQUESTS)
        )
    )


def chunks_shift(num_multiprocessors: int, num_kv_heads: int) -> int:
    """A long cache has so many chunks, as a power of two: as many as a head has blocks."""
    return min(max(num_multiprocessors // num_kv_heads, 1).bit_length() - 1, _MAX_CHUNKS_SHIFT)


def attend(  # noqa: PLR0913 - the parts of a paged batch
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """One launch per `_MAX_REQUESTS` requests. `serves` must hold."""
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    out_THd = torch.empty(q_THd.shape, dtype=q_THd.dtype, device=q_THd.device)
    num_requests = slots.shape[0]
    group = num_heads // num_kv_heads
    # One query per request is known from the shapes; else a tile holds what its rows can.
    is_decode = num_tokens == num_requests
    needed = group if is_decode else group * -(-num_tokens // max(num_requests, 1))
    rows = next((r for r in (8, 16) if needed <= r), 32)
    queries_per_tile = 1 if is_decode else max(1, rows // group)
    rows_per_tile = group * queries_per_tile
    shift = chunks_shift(num_multiprocessors(), num_kv_heads)
    partial_bytes = 4 * (-(-rows_per_tile * (head_dim + 2) // 4) * 4)
    per_launch = num_requests
    if is_decode:
        fitting = _MAX_PARTIALS_BYTES // ((partial_bytes * num_kv_heads) << shift)
        per_launch = max(1, min(fitting, _MAX_REQUESTS))
    for first in range(0, num_requests, per_launch):
        count = min(per_launch, num_requests - first)
        # A tile ends where the length of chunks changes, too.
        spans = num_tokens // (_STAGE_TOKENS << shift) + 2 * count
        num_tiles = count if is_decode else num_tokens // queries_per_tile + spans
        num_items = (num_tiles * num_kv_heads) << shift
        partials = workspace("attention partials", num_items * partial_bytes, q_THd.device)
        counters = workspace("attention counters", 4 * (2 + num_tiles * num_kv_heads), q_THd.device)
        params = _Params(
            *(q_THd.data_ptr(), k_cache_BKPd.data_ptr(), v_cache_BKPd.data_ptr()),
            *(out_THd.data_ptr(), query_starts[first:].data_ptr(), kv_lens[first:].data_ptr()),
            *(block_table.data_ptr(), slots[first:].data_ptr()),
            None if sinks_H is None else sinks_H.data_ptr(),
            *(partials.data_ptr(), counters.data_ptr(), count, num_heads, num_kv_heads),
            *(block_tokens.bit_length() - 1, num_blocks, q_THd.stride(0), block_table.stride(0)),
            *(queries_per_tile, rows_per_tile, window, scale, softcap, shift),
        )
        kernel = _SOURCE.kernel(
            f"attend_{head_dim}_{rows}",
            threads=_THREADS,
            shared_bytes=_shared_bytes(head_dim, rows, rows_per_tile),
        )
        kernel.launch((min(num_multiprocessors(), num_items), 1), params)
    return out_THd


def _shared_bytes(head_dim: int, rows: int, rows_per_tile: int) -> int:
    """The ring, the warps' sums, the kernel's `Shared`, and queries where they are kept there."""
    ring = _STAGES * 2 * (_STAGE_TOKENS * 2 * head_dim + 128)
    sums = _WARPS * min(8, -(-rows_per_tile // 2) * 2) * 4 * head_dim
    return ring + sums + _STATE_BYTES + (2 * rows * (head_dim + 32) if rows > 8 else 0)


@paged_attention.implement(
    "cuda",
    device="cuda",
    needs={"sm90"},
    dtypes=BF16,
    stored=BF16,
    rank=TUNED,
    is_row_invariant=False,
)
def cuda(  # noqa: PLR0913 - the parts of a paged batch
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    batch = (q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots, sinks_H)
    options: dict[str, Any] = {"scale": scale, "window": window, "softcap": softcap}
    if serves(q_THd, k_cache_BKPd, slots):
        return attend(*batch, **options)
    # Many queries a request: each tile of 32 rows would read the cache again.
    if not (window or softcap) and cuda_prefill.serves(q_THd, k_cache_BKPd, slots, sinks_H):
        return cuda_prefill.attend(*batch[:-1], scale=scale)
    return portable(paged_attention, *batch, **options)(*batch, **options)
