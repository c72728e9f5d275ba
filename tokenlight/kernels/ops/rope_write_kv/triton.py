# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.rope_write_kv.contract import rope_write_kv_
from tokenlight.kernels.triton.launch import CACHED, FLOATS, check_heads
from tokenlight.kernels.triton.math import turn
from tokenlight.kernels.triton.paged import TABLE_SIZES, cache_row, find_owner, to_cache

_HEADS = 8


@rope_write_kv_.implement("triton", device="cuda", dtypes=FLOATS, stored=CACHED, rank=PORTABLE)
def run(
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
    check_heads(q_THd, k_TKd, v_TKd)
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    if not num_tokens or not len(slots):
        return
    q_blocks, k_blocks = triton.cdiv(num_heads, _HEADS), triton.cdiv(num_kv_heads, _HEADS)
    _heads[(num_tokens, q_blocks + k_blocks)](
        *(q_THd, k_TKd, v_TKd, cos_sin_Tr, k_cache_BKPd, v_cache_BKPd, positions_T),
        *(query_starts, block_table, slots, len(slots)),
        *((q_THd, k_TKd) if q_weight_d is None else (q_weight_d, k_weight_d)),
        *(q_THd.stride(0), k_TKd.stride(0), v_TKd.stride(0), block_table.stride(0)),
        *(*block_table.shape, num_blocks, num_heads, num_kv_heads, block_tokens),
        *(head_dim, cos_sin_Tr.shape[1] // 2, eps, q_blocks),
        HAS_NORMS=q_weight_d is not None,
        HEADS=_HEADS,
        BLOCK=triton.next_power_of_2(head_dim),
    )


@triton.jit(do_not_specialize=["num_requests", *TABLE_SIZES])
def _heads(
    q, k, v, cos_sin, k_cache, v_cache, positions, query_starts, block_table, slots, num_requests,
    q_weight, k_weight, q_stride, k_stride, v_stride, table_stride, num_slots, num_columns,
    num_blocks, num_heads, num_kv_heads, block_tokens, head_dim, half, eps,
    q_blocks, HAS_NORMS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    block = tl.program_id(1)
    angles = cos_sin + token.to(tl.int64) * 2 * half
    d = tl.arange(0, BLOCK)[None, :]
    if block < q_blocks:
        head = block * HEADS + tl.arange(0, HEADS)
        inside = (head < num_heads)[:, None] & (d < head_dim)
        x = q + token.to(tl.int64) * q_stride + head[:, None] * head_dim
        turned = _turned(x, q_weight, angles, d, inside, head_dim, half, eps, HAS_NORMS)
        # All of the heads are read before any of them is written.
        tl.debug_barrier()
        tl.store(x + d, turned, mask=inside)
    else:
        head = (block - q_blocks) * HEADS + tl.arange(0, HEADS)
        inside = (head < num_kv_heads)[:, None] & (d < head_dim)
        here = head[:, None] * head_dim
        x = k + token.to(tl.int64) * k_stride + here
        turned = _turned(x, k_weight, angles, d, inside, head_dim, half, eps, HAS_NORMS)
        value = tl.load(v + token.to(tl.int64) * v_stride + here + d, mask=inside, other=0.0)
        request, _ = find_owner(query_starts, num_requests, token, 1, 128)
        slot = tl.load(slots + request, mask=request < num_requests, other=-1)
        row = cache_row(
            block_table, slot, tl.load(positions + token), request < num_requests,
            table_stride, num_slots, num_columns, num_blocks, num_kv_heads, block_tokens, head,
        )[:, None]  # fmt: skip
        place = row * head_dim + d
        inside &= row >= 0
        tl.store(k_cache + place, to_cache(turned, k_cache), mask=inside)
        tl.store(v_cache + place, to_cache(value, v_cache), mask=inside)


@triton.jit
def _turned(x, weight, angles, d, inside, head_dim, half, eps, HAS_NORMS: tl.constexpr):
    """Heads, normalised and rotated, rounded where the separate ops round."""
    is_turned = d < 2 * half
    other = tl.where(d < half, d + half, d - half)
    y = tl.load(x + d, mask=inside, other=0.0)
    partner = tl.load(x + other, mask=inside & is_turned, other=0.0)
    if HAS_NORMS:
        gain = tl.load(weight + d, mask=d < head_dim, other=0.0).to(tl.float32)
        other_gain = tl.load(weight + other, mask=is_turned, other=0.0).to(tl.float32)
        wide = y.to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, 1) / head_dim + eps)[:, None]
        y = (wide * scale * gain).to(y.dtype)
        partner = (partner.to(tl.float32) * scale * other_gain).to(partner.dtype)
    i = tl.where(d < half, d, d - half)
    cos = tl.load(angles + i, mask=is_turned, other=1.0)
    sin = tl.load(angles + half + i, mask=is_turned, other=0.0)
    turned = turn(y.to(tl.float32), partner.to(tl.float32), cos, tl.where(d < half, -sin, sin))
    return turned.to(y.dtype)
