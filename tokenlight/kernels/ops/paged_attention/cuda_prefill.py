# SPDX-License-Identifier: Apache-2.0
"""A prompt's attention on a Hopper GPU: one softmax over all of a request's keys."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tokenlight.kernels.cuda import BoxMap, Source, box_map

_SOURCE = Source(Path(__file__).with_name("cuda_prefill.cu"))
_THREADS = 384
# Of a tile: rows are queries and heads of the group; keys are a turn's, and come in boxes.
_ROWS = 128
_KEYS = 176
_MAX_BOX_TOKENS = 16
# Of a dimension: queries, keys and values of two turns; and barriers.
_SHARED_BYTES = {dim: 2 * dim * (_ROWS + 4 * _KEYS) + 1024 for dim in (64, 128)}
# From this many tokens of each request on, tiles are full enough.
_MIN_QUERIES = 64
_MAX_REQUESTS = 256


class _Params(ctypes.Structure):
    _fields_ = (
        *((name, BoxMap) for name in ("k", "v")),
        *((name, ctypes.c_void_p) for name in ("q", "out")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "kv_lens", "block_table", "slots")),
        *((name, ctypes.c_int) for name in ("num_requests", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int) for name in ("block_shift", "num_blocks", "q_stride")),
        *((name, ctypes.c_int) for name in ("table_stride", "num_columns", "num_slots")),
        *((name, ctypes.c_int) for name in ("box_tokens", "queries_per_tile")),
        ("scale", ctypes.c_float),
        # A tensor map is aligned to 64 bytes, and so is the struct's size.
        ("padding", ctypes.c_byte * 32),
    )


def serves(q_THd: Tensor, k_cache_BKPd: Tensor, slots: Tensor, sinks_H: Tensor | None) -> bool:
    """Whether the kernel takes these shapes, and is the one to take them: many queries each."""
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    num_requests = slots.shape[0]
    return (
        head_dim in _SHARED_BYTES
        and num_heads // num_kv_heads <= _ROWS
        and block_tokens in (8, 16, 32, 64, 128, 256)
        and (num_blocks + 1) * num_kv_heads * block_tokens < 1 << 31
        and q_THd.stride(0) % 8 == 0
        and q_THd.data_ptr() % 16 == 0
        and 0 < num_requests <= _MAX_REQUESTS
        and num_tokens // num_requests >= _MIN_QUERIES
        and sinks_H is None
    )


def attend(
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    *,
    scale: float,
) -> Tensor:
    """One launch. `serves` must hold; neither a window nor a softcap."""
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    num_requests = slots.shape[0]
    out_THd = torch.empty(q_THd.shape, dtype=q_THd.dtype, device=q_THd.device)
    queries_per_tile = _ROWS // (num_heads // num_kv_heads)
    num_tiles = num_tokens // queries_per_tile + num_requests
    box_tokens = min(block_tokens, _MAX_BOX_TOKENS)
    rows = num_blocks * num_kv_heads * block_tokens
    params = _Params(
        box_map(k_cache_BKPd.data_ptr(), rows, head_dim, box_tokens),
        box_map(v_cache_BKPd.data_ptr(), rows, head_dim, box_tokens),
        *(q_THd.data_ptr(), out_THd.data_ptr(), query_starts.data_ptr(), kv_lens.data_ptr()),
        *(block_table.data_ptr(), slots.data_ptr(), num_requests, num_heads, num_kv_heads),
        *(block_tokens.bit_length() - 1, num_blocks, q_THd.stride(0), block_table.stride(0)),
        *(block_table.shape[1], block_table.shape[0], box_tokens, queries_per_tile, scale),
    )
    kernel = _SOURCE.kernel(
        f"prefill_{head_dim}",
        threads=_THREADS,
        shared_bytes=_SHARED_BYTES[head_dim],
    )
    kernel.launch((num_tiles * num_kv_heads, 1), params)
    return out_THd
