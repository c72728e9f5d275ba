# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op(typed_by=("q_THC", "cache_B1PL"))
def mla_attention(
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
    """Causal attention of all heads to one latent per token, in the space of latents.

    A token's key is its latent beside the rotated part that all heads share; its value is the
    latent. Heads' own projections of keys and values are folded into the queries before this call,
    and into what it returns after it (`head_linear`), which changes no sum.

    Shapes: T tokens, R requests, H heads, C elements of a latent, r rotated elements, L = C + r, B
    blocks of the pool, P tokens per block.

    Query i of the n of request r sits at position kv_lens[r] - n + i and sees the positions up to
    its own.

    Args:
        q_THC: queries in the space of latents; heads and elements contiguous, tokens may be
            strided.
        q_THr: their rotated part, likewise.
        cache_B1PL: as `write_latent_` writes it. Rows that no query sees may hold anything.
        query_starts: as `paged_attention` takes them, and so all that follow.
        kv_lens: int32 [R].
        block_table: int32 [slots, blocks per request].
        slots: int32 [R].
        scale: multiplies q . k.

    Returns:
        A new contiguous [T, H, C] of the dtype of `q_THC`.

    Raises:
        IndexError: a slot, a length or a block is outside its table.
    """
    raise NotImplementedError
