# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.write_kv.contract import write_kv_
from tokenlight.kernels.triton.launch import CACHED, FLOATS, check_heads
from tokenlight.kernels.triton.paged import TABLE_SIZES, cache_row, find_owner, to_cache

_HEADS = 8


@write_kv_.implement("triton", device="cuda", dtypes=FLOATS, stored=CACHED, rank=PORTABLE)
def run(
    k_TKd: Tensor,
    v_TKd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    check_heads(k_TKd, v_TKd)
    num_tokens, num_heads, head_dim = k_TKd.shape
    num_blocks, _, block_tokens, _ = k_cache_BKPd.shape
    if num_tokens and len(slots):
        _write[(num_tokens, triton.cdiv(num_heads, _HEADS))](
            *(k_TKd, v_TKd, k_cache_BKPd, v_cache_BKPd, positions_T, query_starts),
            *(block_table, slots, len(slots), k_TKd.stride(0), v_TKd.stride(0)),
            *(block_table.stride(0), *block_table.shape, num_blocks, num_heads),
            *(block_tokens, head_dim),
            HEADS=_HEADS,
            BLOCK=triton.next_power_of_2(head_dim),
        )


@triton.jit(do_not_specialize=["num_requests", *TABLE_SIZES])
def _write(
    k, v, k_cache, v_cache, positions, query_starts, block_table, slots, num_requests,
    k_stride, v_stride, table_stride, num_slots, num_columns, num_blocks, num_heads,
    block_tokens, head_dim, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    request, _ = find_owner(query_starts, num_requests, token, 1, 128)
    slot = tl.load(slots + request, mask=request < num_requests, other=-1)
    row = cache_row(
        block_table, slot, tl.load(positions + token), request < num_requests,
        table_stride, num_slots, num_columns, num_blocks, num_heads, block_tokens, head,
    )  # fmt: skip
    d = tl.arange(0, BLOCK)[None, :]
    inside = (row >= 0)[:, None] & (head < num_heads)[:, None] & (d < head_dim)
    here = head[:, None] * head_dim + d
    there = row[:, None] * head_dim + d
    from_k = tl.load(k + token.to(tl.int64) * k_stride + here, mask=inside)
    from_v = tl.load(v + token.to(tl.int64) * v_stride + here, mask=inside)
    tl.store(k_cache + there, to_cache(from_k, k_cache), mask=inside)
    tl.store(v_cache + there, to_cache(from_v, v_cache), mask=inside)
