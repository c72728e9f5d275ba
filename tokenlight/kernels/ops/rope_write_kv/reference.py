# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.rms_norm.reference import reference as rms_norm
from tokenlight.kernels.ops.rope.reference import reference as rope_
from tokenlight.kernels.ops.rope_write_kv.contract import rope_write_kv_
from tokenlight.kernels.ops.write_kv.reference import reference as write_kv_


@rope_write_kv_.implement("reference", device="any", rank=REFERENCE)
def reference(  # noqa: PLR0913 - what lies between a projection and attention
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
    if q_weight_d is not None:
        q_THd.copy_(rms_norm(q_THd, q_weight_d, eps=eps))
    key_TKd = k_TKd.clone() if k_weight_d is None else rms_norm(k_TKd, k_weight_d, eps=eps)
    rope_(q_THd, key_TKd, cos_sin_Tr)
    caches = k_cache_BKPd, v_cache_BKPd
    write_kv_(key_TKd, v_TKd, *caches, positions_T, query_starts, block_table, slots)
