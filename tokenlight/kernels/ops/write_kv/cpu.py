# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.kv_rows import row_elements
from tokenlight.kernels.native import F32, KV_TYPES, paged_batch
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.native_paged import kv_node
from tokenlight.kernels.ops.write_kv.contract import write_kv_


@write_kv_.implement("cpu", device="cpu", dtypes=F32, stored=KV_TYPES, rank=TUNED)
def cpu(
    k_TKd: Tensor,
    v_TKd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    num_tokens, num_heads, head_dim = k_TKd.shape
    if (
        v_TKd.shape != k_TKd.shape
        or v_TKd.dtype != torch.float32
        or k_TKd.stride()[1:] != (head_dim, 1)
        or v_TKd.stride()[1:] != (head_dim, 1)
        or k_cache_BKPd.shape[1::2] != (num_heads, row_elements(k_cache_BKPd.dtype, head_dim))
        or v_cache_BKPd.shape != k_cache_BKPd.shape
        or v_cache_BKPd.dtype != k_cache_BKPd.dtype
        or not v_cache_BKPd.is_contiguous()
        or positions_T.shape != (num_tokens,)
        or positions_T.dtype != torch.int32
        or not positions_T.is_contiguous()
    ):
        raise ValueError(
            f"keys {list(k_TKd.shape)}, values {v_TKd.dtype} {list(v_TKd.shape)} and positions "
            f"{positions_T.dtype} {list(positions_T.shape)} do not fit caches of "
            f"{list(k_cache_BKPd.shape)} and {list(v_cache_BKPd.shape)}"
        )
    _cpu.write_kv(
        paged_batch(query_starts, block_table, slots, num_tokens, k_cache_BKPd),
        k_TKd.data_ptr(),
        v_TKd.data_ptr(),
        k_cache_BKPd.data_ptr(),
        v_cache_BKPd.data_ptr(),
        positions_T.data_ptr(),
        KV_TYPES[k_cache_BKPd.dtype],
        num_heads,
        head_dim,
        k_TKd.stride(0),
        v_TKd.stride(0),
    )


@write_kv_.enter("cpu")
def entry(call: NativeCall) -> bool:
    if not (call.operand(0).has_dense_rows() and call.operand(1).has_dense_rows()):
        return False
    call.program.write_kv(kv_node(call, k=0, v=1, k_cache=2))
    return True
