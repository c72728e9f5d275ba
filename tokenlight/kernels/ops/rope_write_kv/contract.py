# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op(typed_by=("q_THd", "k_cache_BKPd"), mutates=("q_THd", "k_cache_BKPd", "v_cache_BKPd"))
def rope_write_kv_(  # noqa: PLR0913 - what lies between a projection and attention
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
    """All between the fused projection and attention: `rms_norm`, `rope_`, `write_kv_`.

    Shapes: T tokens, R requests, H heads, K kv heads, d head dim, r rotated dims, B blocks of the
    pool, P tokens per block.

    Args:
        q_THd: normalised and rotated in place; heads and dimensions contiguous, tokens may be
            strided.
        k_TKd: likewise strided; normalised and rotated on its way into the cache, itself only read.
        v_TKd: likewise strided; only read.
        cos_sin_Tr: as `rope_` takes it.
        k_cache_BKPd: as `write_kv_` takes it, and so all that follow.
        v_cache_BKPd: same shape and dtype.
        positions_T: int32. On a GPU this and the tables below may be read while the kernel ahead
            still runs: what wrote them has ended before that began, as a step's inputs have.
        query_starts: int32 [R+1].
        block_table: int32 [slots, blocks per request].
        slots: int32 [R].
        q_weight_d: gain of each query head's norm; None for no norm.
        k_weight_d: of each key head's; None together with `q_weight_d`.
        eps: of both norms.

    Raises:
        IndexError: a slot, a position or a block is outside its table; nothing is promised of the
            caches then.
    """
    raise NotImplementedError
