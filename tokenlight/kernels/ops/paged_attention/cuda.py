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
_THREADS = 128
_MAX_REQUESTS = 256
_MAX_QUERIES = 8
_MAX_SEGMENTS = 512
_MAX_PARTIALS_BYTES = 256 << 20
_BLOCKS_PER_SM = {(64, 8): 3, (64, 16): 3, (64, 32): 2, (128, 8): 3, (128, 16): 2, (128, 32): 2}
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
    )


def serves(q_THd: Tensor, k_cache_BKPd: Tensor, block_table: Tensor, slots: Tensor) -> bool:
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
        and segments_before(block_table.shape[1] * block_tokens) <= _MAX_SEGMENTS
        and (
            num_tokens == num_requests
            or (num_tokens <= _MAX_QUERIES * num_requests and num_requests <= _MAX_REQUESTS)
        )
    )


def segments_before(position: int) -> int:
    """How many segments begin before a position: the kernel's `SegmentsBefore`."""
    bounds = ((0, 4096, 128), (4096, 16384, 512), (16384, 65536, 1024))
    count = 0
    for start, stop, size in (*bounds, (65536, 1 << 62, 2048)):
        if position > start:
            count += -(-(min(position, stop) - start) // size)
    return count


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
    # One query per request is known from the shapes; else a tile holds what 32 rows can.
    is_decode = num_tokens == num_requests
    rows = next(r for r in (8, 16, 32) if group <= r) if is_decode else 32
    queries_per_tile = max(1, rows // group)
    rows_per_tile = group if is_decode else group * queries_per_tile
    if is_decode:
        queries_per_tile = 1
    max_segments = segments_before(block_table.shape[1] * block_tokens)
    partial_bytes = 4 * (-(-rows_per_tile * (head_dim + 2) // 4) * 4)
    per_launch = num_requests
    if is_decode:
        fitting = _MAX_PARTIALS_BYTES // (partial_bytes * num_kv_heads * max_segments)
        per_launch = max(1, min(fitting, _MAX_REQUESTS))
    for first in range(0, num_requests, per_launch):
        count = min(per_launch, num_requests - first)
        num_tiles = count if is_decode else num_tokens // queries_per_tile + count
        num_pairs = num_tiles * num_kv_heads
        partials = workspace(
            "attention partials", num_pairs * max_segments * partial_bytes, q_THd.device
        )
        counters = workspace("attention counters", 4 * (2 + num_pairs), q_THd.device)
        params = _Params(
            *(q_THd.data_ptr(), k_cache_BKPd.data_ptr(), v_cache_BKPd.data_ptr()),
            *(out_THd.data_ptr(), query_starts[first:].data_ptr(), kv_lens[first:].data_ptr()),
            *(block_table.data_ptr(), slots[first:].data_ptr()),
            None if sinks_H is None else sinks_H.data_ptr(),
            *(partials.data_ptr(), counters.data_ptr(), count, num_heads, num_kv_heads),
            *(block_tokens.bit_length() - 1, num_blocks, q_THd.stride(0), block_table.stride(0)),
            *(queries_per_tile, rows_per_tile, window, scale, softcap),
        )
        kernel = _SOURCE.kernel(
            f"attend_{head_dim}_{rows}",
            threads=_THREADS,
            shared_bytes=_shared_bytes(head_dim, rows),
        )
        resident = num_multiprocessors() * _BLOCKS_PER_SM[head_dim, rows]
        kernel.launch((min(resident, num_pairs * max_segments), 1), params)
    return out_THd


def _shared_bytes(head_dim: int, rows: int) -> int:
    """The kernel's `Shared`, and the queries where they are kept there."""
    sums = 4 * rows * (4 * head_dim + 8)
    return sums + 2 * 4 * _MAX_REQUESTS + 16 + 2 * rows * (head_dim + 32)


@paged_attention.implement(
    "cuda", device="cuda", needs={"sm90"}, dtypes=BF16, stored=BF16, rank=TUNED
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
    if serves(q_THd, k_cache_BKPd, block_table, slots):
        return attend(*batch, **options)
    # Many queries a request: each tile of 32 rows would read the cache again.
    if not (window or softcap) and cuda_prefill.serves(q_THd, k_cache_BKPd, slots, sinks_H):
        return cuda_prefill.attend(*batch[:-1], scale=scale)
    return portable(paged_attention, *batch, **options)(*batch, **options)
