# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op(typed_by=("latent_TC", "cache_B1PL"), mutates=("cache_B1PL",))
def write_latent_(
    latent_TC: Tensor,
    rotated_T1r: Tensor,
    cache_B1PL: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    """Store each token's latent and rotated key side by side in its request's blocks, in place.

    Shapes: T tokens, R requests, C elements of a latent, r rotated elements, L = C + r, B blocks of
    the pool, P tokens per block.

    Args:
        latent_TC: elements contiguous, tokens may be strided.
        rotated_T1r: the part of the keys that has positions, shared by all heads; likewise.
        cache_B1PL: contiguous; float32, float16 or bfloat16.
        positions_T: as `write_kv_` takes them, and so all that follow.
        query_starts: int32 [R+1].
        block_table: int32 [slots, blocks per request].
        slots: int32 [R].

    Raises:
        IndexError: a slot, a position or a block is outside its table; nothing is promised of the
            cache then.
    """
    raise NotImplementedError
