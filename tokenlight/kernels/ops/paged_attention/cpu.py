# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.kv_rows import row_elements
from tokenlight.kernels.native import F32, KV_TYPES, paged_batch
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.native_paged import paged_places
from tokenlight.kernels.ops.paged_attention.contract import paged_attention


@paged_attention.implement("cpu", device="cpu", dtypes=F32, stored=KV_TYPES, rank=TUNED)
def cpu(  # noqa: PLR0913 - the parts of a paged batch
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
    num_tokens, num_heads, head_dim = q_THd.shape
    num_kv_heads = k_cache_BKPd.shape[1]
    if (
        q_THd.stride()[1:] != (head_dim, 1)
        or k_cache_BKPd.shape[3] != row_elements(k_cache_BKPd.dtype, head_dim)
        or num_heads % num_kv_heads
        or v_cache_BKPd.shape != k_cache_BKPd.shape
        or v_cache_BKPd.dtype != k_cache_BKPd.dtype
        or not v_cache_BKPd.is_contiguous()
        or not _are_lengths(kv_lens, slots)
        or window < 0
    ):
        raise ValueError(
            f"queries {list(q_THd.shape)}, kv_lens {kv_lens.dtype} {list(kv_lens.shape)} and "
            f"window {window} do not fit caches of {list(k_cache_BKPd.shape)} and "
            f"{list(v_cache_BKPd.shape)}"
        )
    out_THd = torch.empty(q_THd.shape)
    _cpu.paged_attention(
        paged_batch(query_starts, block_table, slots, num_tokens, k_cache_BKPd),
        out_THd.data_ptr(),
        q_THd.data_ptr(),
        k_cache_BKPd.data_ptr(),
        v_cache_BKPd.data_ptr(),
        kv_lens.data_ptr(),
        _sinks_address(sinks_H, num_heads),
        KV_TYPES[k_cache_BKPd.dtype],
        num_heads,
        num_kv_heads,
        head_dim,
        q_THd.stride(0),
        window,
        scale,
        softcap,
    )
    return out_THd


def _are_lengths(kv_lens: Tensor, slots: Tensor) -> bool:
    is_int32 = kv_lens.dtype == torch.int32
    return is_int32 and kv_lens.shape == slots.shape and kv_lens.is_contiguous()


def _sinks_address(sinks_H: Tensor | None, num_heads: int) -> int:
    if sinks_H is None:
        return 0
    if sinks_H.shape != (num_heads,) or sinks_H.dtype != torch.float32:
        raise ValueError(
            f"want float32 sinks of {num_heads} heads, got {sinks_H.dtype} {list(sinks_H.shape)}"
        )
    return sinks_H.data_ptr()


@paged_attention.enter("cpu")
def entry(call: NativeCall) -> bool:
    q, k_cache, v_cache, options = call.operand(0), call.operand(1), call.operand(2), call.options
    num_heads, head_dim = q.shape
    if not q.has_dense_rows():
        return False
    call.program.paged_attention(
        call.outputs[0].place,
        q.place,
        k_cache.place,
        v_cache.place,
        call.place(4),
        call.place(7),
        paged_places(call, query_starts=3, block_table=5, slots=6, cache=k_cache),
        KV_TYPES[k_cache.dtype],
        num_heads,
        k_cache.shape[0],
        head_dim,
        q.strides[0],
        options.get("window", 0),
        options["scale"],
        options.get("softcap", 0.0),
    )
    return True
