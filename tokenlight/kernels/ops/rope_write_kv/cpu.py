# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.kv_rows import row_elements
from tokenlight.kernels.native import F32, KV_TYPES, paged_batch
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.native_paged import kv_node
from tokenlight.kernels.ops.rope_write_kv.contract import rope_write_kv_

_MAX_HEAD_DIM = 1024  # kMaxHeadDim of csrc/cpu/rope_write_kv.h


@rope_write_kv_.implement("cpu", device="cpu", dtypes=F32, stored=KV_TYPES, rank=TUNED)
def cpu(  # noqa: PLR0913 - what lies between a projection and attention
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
    gains = [g for g in (q_weight_d, k_weight_d) if g is not None]
    heads = (q_THd, k_TKd, v_TKd)
    _check(heads, cos_sin_Tr, (k_cache_BKPd, v_cache_BKPd), positions_T, gains)
    num_tokens, num_q_heads, head_dim = q_THd.shape
    num_heads, rotated = k_TKd.shape[1], cos_sin_Tr.shape[1]
    _cpu.rope_write_kv(
        paged_batch(query_starts, block_table, slots, num_tokens, k_cache_BKPd),
        q_THd.data_ptr(),
        k_TKd.data_ptr(),
        v_TKd.data_ptr(),
        cos_sin_Tr.data_ptr(),
        k_cache_BKPd.data_ptr(),
        v_cache_BKPd.data_ptr(),
        positions_T.data_ptr(),
        0 if q_weight_d is None else q_weight_d.data_ptr(),
        0 if k_weight_d is None else k_weight_d.data_ptr(),
        KV_TYPES[k_cache_BKPd.dtype],
        num_q_heads,
        num_heads,
        head_dim,
        rotated,
        q_THd.stride(0),
        k_TKd.stride(0),
        v_TKd.stride(0),
        eps,
    )


def _check(
    heads: tuple[Tensor, Tensor, Tensor],
    cos_sin_Tr: Tensor,
    caches: tuple[Tensor, Tensor],
    positions_T: Tensor,
    gains: list[Tensor],
) -> None:
    """Raise ValueError unless all of these fit each other."""
    q_THd, k_TKd, v_TKd = heads
    k_cache_BKPd, v_cache_BKPd = caches
    num_tokens, _, head_dim = q_THd.shape
    num_heads, rotated = k_TKd.shape[1], cos_sin_Tr.shape[1]
    if (
        k_TKd.shape != (num_tokens, num_heads, head_dim)
        or v_TKd.shape != k_TKd.shape
        or any(t.dtype is not torch.float32 for t in (*heads, cos_sin_Tr, *gains))
        or any(t.stride()[1:] != (head_dim, 1) for t in heads)
        or any(g.shape != (head_dim,) or not g.is_contiguous() for g in gains)
        or len(gains) == 1
        or head_dim > _MAX_HEAD_DIM
        or cos_sin_Tr.shape[0] != num_tokens
        or rotated % 2
        or rotated > head_dim
        or not cos_sin_Tr.is_contiguous()
        or k_cache_BKPd.shape[1::2] != (num_heads, row_elements(k_cache_BKPd.dtype, head_dim))
        or v_cache_BKPd.shape != k_cache_BKPd.shape
        or v_cache_BKPd.dtype != k_cache_BKPd.dtype
        or not v_cache_BKPd.is_contiguous()
        or positions_T.shape != (num_tokens,)
        or positions_T.dtype != torch.int32
        or not positions_T.is_contiguous()
    ):
        raise ValueError(
            f"queries {list(q_THd.shape)}, keys {list(k_TKd.shape)}, values {list(v_TKd.shape)}, "
            f"angles {list(cos_sin_Tr.shape)} and positions {positions_T.dtype} "
            f"{list(positions_T.shape)} do not fit caches of {list(k_cache_BKPd.shape)} and "
            f"{list(v_cache_BKPd.shape)}"
        )


@rope_write_kv_.enter("cpu")
def entry(call: NativeCall) -> bool:
    q, k, v, cos_sin = (call.operand(i) for i in range(4))
    num_q_heads, head_dim = q.shape
    if head_dim > _MAX_HEAD_DIM or not all(t.has_dense_rows() for t in (q, k, v, cos_sin)):
        return False
    call.program.rope_write_kv(
        kv_node(call, k=1, v=2, k_cache=4),
        q.place,
        cos_sin.place,
        call.place(10),
        call.place(11),
        num_q_heads,
        q.strides[0],
        cos_sin.shape[0],
        call.options.get("eps", 0.0),
    )
    return True
