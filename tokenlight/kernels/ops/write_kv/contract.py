# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op(typed_by=("k_TKd", "k_cache_BKPd"), mutates=("k_cache_BKPd", "v_cache_BKPd"))
def write_kv_(
    k_TKd: Tensor,
    v_TKd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    """Store each token's keys and values in its request's blocks, in place, in the cache's dtype.

    Shapes: T tokens, R requests, K kv heads, d head dim, B blocks of the pool, P tokens per block.

    Args:
        k_TKd: keys; heads and dimensions contiguous, tokens may be strided.
        v_TKd: values, likewise.
        k_cache_BKPd: contiguous; float32, float16, bfloat16, float8_e4m3fn, which clamps to 448, or
            int8 with d + 4 elements in a row, its scale the last (kernels/kv_rows.py).
        v_cache_BKPd: same shape and dtype.
        positions_T: int32; a token of request r goes to block `block_table[slots[r], position //
            P]`, row position % P.
        query_starts: int32 [R+1]; request r owns tokens query_starts[r] to query_starts[r+1].
        block_table: int32 [slots, blocks per request]; a row's columns that no position needs may
            hold anything.
        slots: int32 [R]; each request's row of `block_table`.

    Raises:
        IndexError: a slot, a position or a block is outside its table; nothing is promised of the
            caches then.
    """
    raise NotImplementedError
