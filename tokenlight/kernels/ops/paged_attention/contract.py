# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op

SHORT_TOKENS = 2048
"""A table no wider than this has requests that are all short: kernels may count on that."""


@op(typed_by=("q_THd", "k_cache_BKPd"))
def paged_attention(  # noqa: PLR0913 - the parts of a paged batch
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
    """Causal attention of each request's queries to its own keys and values, read in their blocks.

    Shapes: T tokens, R requests, H heads (a multiple of K), K kv heads, d head dim, B blocks of the
    pool, P tokens per block.

    Query i of the n of request r sits at position kv_lens[r] - n + i and sees the positions up to
    its own. Head h reads kv head h // (H / K).

    Args:
        q_THd: queries; heads and dimensions contiguous, tokens may be strided.
        k_cache_BKPd: contiguous; float32, float16, bfloat16, float8_e4m3fn, or int8 with d + 4
            elements in a row (kernels/kv_rows.py). Rows that no query
            sees may hold anything.
        v_cache_BKPd: same shape and dtype.
        query_starts: int32 [R+1]; request r owns tokens query_starts[r] to query_starts[r+1]. On a
            GPU this and the tables below may be read while the kernel ahead still runs: what wrote
            them has ended before that began, as a step's inputs have.
        kv_lens: int32 [R]; the request's tokens in the cache, this step's included.
        block_table: int32 [slots, blocks per request]; columns beyond a request's last block may
            hold anything.
        slots: int32 [R]; each request's row of `block_table`.
        sinks_H: float32; a score per head that joins each softmax and has no value, so that a query
            may attend to nothing. Neither scaled nor squashed. None for none.
        scale: multiplies q . k; positive.
        window: a query at position i sees only positions greater than i - window; 0 for no window.
        softcap: scores become softcap * tanh(score / softcap) before the softmax; 0 for none.

    Returns:
        A new contiguous [T, H, d] of the dtype of `q_THd`.

    Raises:
        IndexError: a slot, a length or a block is outside its table.
    """
    raise NotImplementedError
