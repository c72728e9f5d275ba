# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import Source, portable
from tokenlight.kernels.ops.rope_write_kv.contract import rope_write_kv_

_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_WARPS = 4
_BF16 = frozenset({torch.bfloat16})


class _Params(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "cos_sin", "k_cache", "v_cache")),
        *((name, ctypes.c_void_p) for name in ("positions", "query_starts", "block_table")),
        *((name, ctypes.c_void_p) for name in ("slots", "q_gain", "k_gain")),
        *((name, ctypes.c_int) for name in ("num_requests", "num_heads", "num_kv_heads")),
        *((name, ctypes.c_int) for name in ("head_dim", "rotated", "block_shift", "num_blocks")),
        *((name, ctypes.c_int) for name in ("num_slots", "num_columns", "q_stride", "k_stride")),
        *((name, ctypes.c_int) for name in ("v_stride", "table_stride")),
        ("eps", ctypes.c_float),
    )


@rope_write_kv_.implement(
    "cuda", device="cuda", needs={"sm90"}, dtypes=_BF16, stored=_BF16, rank=TUNED
)
def cuda(  # noqa: PLR0913 - what lies between a projection and attention
    q_THd: Tensor,
    k_TKd: Tensor,
    v_TKd: Tensor,
    cos_sin_Tr: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
    q_weight_d: Tensor | None,
    k_weight_d: Tensor | None,
    *,
    eps: float = 0.0,
) -> None:
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    if head_dim > 256 or head_dim % 2 or block_tokens & (block_tokens - 1):
        batch = (q_THd, k_TKd, v_TKd, cos_sin_Tr, k_cache_BKPd, v_cache_BKPd, positions_T)
        rest = (query_starts, block_table, slots, q_weight_d, k_weight_d)
        portable(rope_write_kv_, *batch, *rest, eps=eps)(*batch, *rest, eps=eps)
        return
    if not num_tokens:
        return
    params = _Params(
        *(q_THd.data_ptr(), k_TKd.data_ptr(), v_TKd.data_ptr(), cos_sin_Tr.data_ptr()),
        *(k_cache_BKPd.data_ptr(), v_cache_BKPd.data_ptr(), positions_T.data_ptr()),
        *(query_starts.data_ptr(), block_table.data_ptr(), slots.data_ptr()),
        None if q_weight_d is None else q_weight_d.data_ptr(),
        None if k_weight_d is None else k_weight_d.data_ptr(),
        *(slots.shape[0], num_heads, num_kv_heads, head_dim, cos_sin_Tr.shape[1]),
        *(block_tokens.bit_length() - 1, num_blocks, *block_table.shape),
        *(q_THd.stride(0), k_TKd.stride(0), v_TKd.stride(0), block_table.stride(0)),
        eps,
    )
    kernel = _SOURCE.kernel("rope_write_kv", threads=32 * _WARPS)
    kernel.launch((num_tokens, -(-(num_heads + 2 * num_kv_heads) // _WARPS)), params)
