# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, FLOAT_TYPES, paged_batch
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.native_paged import paged_places
from tokenlight.kernels.ops.mla_attention.contract import mla_attention


@mla_attention.implement("cpu", device="cpu", dtypes=F32, stored=FLOAT_TYPES, rank=TUNED)
def cpu(
    q_THC: Tensor,
    q_THr: Tensor,
    cache_B1PL: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    *,
    scale: float,
) -> Tensor:
    """All heads share one kv head, whose values are the first part of its keys."""
    num_tokens, num_heads, latent_dim = q_THC.shape
    tail_dim = q_THr.shape[-1]
    if (
        q_THr.shape != (num_tokens, num_heads, tail_dim)
        or q_THr.dtype != torch.float32
        or q_THC.stride()[1:] != (latent_dim, 1)
        or q_THr.stride()[1:] != (tail_dim, 1)
        or cache_B1PL.shape[1::2] != (1, latent_dim + tail_dim)
        or kv_lens.shape != slots.shape
        or kv_lens.dtype != torch.int32
        or not kv_lens.is_contiguous()
    ):
        raise ValueError(
            f"queries {list(q_THC.shape)} and {q_THr.dtype} {list(q_THr.shape)}, and kv_lens "
            f"{kv_lens.dtype} {list(kv_lens.shape)}, do not fit a cache of {list(cache_B1PL.shape)}"
        )
    out_THC = torch.empty(q_THC.shape)
    _cpu.mla_attention(
        paged_batch(query_starts, block_table, slots, num_tokens, cache_B1PL),
        out_THC.data_ptr(),
        q_THC.data_ptr(),
        q_THr.data_ptr(),
        cache_B1PL.data_ptr(),
        kv_lens.data_ptr(),
        FLOAT_TYPES[cache_B1PL.dtype],
        num_heads,
        latent_dim,
        tail_dim,
        q_THC.stride(0),
        q_THr.stride(0),
        scale,
    )
    return out_THC


@mla_attention.enter("cpu")
def entry(call: NativeCall) -> bool:
    q, q_tail, cache = (call.operand(index) for index in range(3))
    if not (q.has_dense_rows() and q_tail.has_dense_rows()):
        return False
    num_heads, latent_dim = q.shape
    call.program.mla_attention(
        paged_places(call, query_starts=3, block_table=5, slots=6, cache=cache),
        call.outputs[0].place,
        q.place,
        q_tail.place,
        cache.place,
        call.place(4),
        FLOAT_TYPES[cache.dtype],
        num_heads,
        latent_dim,
        q_tail.shape[-1],
        q.strides[0],
        q_tail.strides[0],
        call.options["scale"],
    )
    return True
