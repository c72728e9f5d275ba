# SPDX-License-Identifier: Apache-2.0
"""Attention to latents in Triton, built as `paged_attention` is, with one kv head of all heads.

A program takes M rows of (query, head) of one request and walks the latents in chunks of _CHUNK
positions, each with a softmax of its own, merged in order; where there are few programs, each has a
chunk and `_merge` does the same sums. A row's bits depend on its own position and latents alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.mla_attention.contract import mla_attention
from tokenlight.kernels.triton.launch import FLOATS, check_heads
from tokenlight.kernels.triton.math import softmax_merge
from tokenlight.kernels.triton.paged import TABLE_SIZES, cache_row, find_owner

_CHUNK = 512
_LOG2_E = tl.constexpr(1.4426950408889634)
_OWNERS = tl.constexpr(128)
_ROWS = 64
_ENOUGH_PROGRAMS = 132


@mla_attention.implement("triton", device="cuda", dtypes=FLOATS, stored=FLOATS, rank=PORTABLE)
def run(
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
    check_heads(q_THC, q_THr)
    num_tokens, num_heads, latent_dim = q_THC.shape
    out_THC = torch.empty_like(q_THC, memory_format=torch.contiguous_format)
    num_requests = len(slots)
    if not num_tokens or not num_requests:
        return out_THC
    num_blocks, _, block_tokens, width = cache_B1PL.shape
    f32, device = torch.float32, q_THC.device
    is_wide = q_THC.dtype is f32 or q_THC.dtype is not cache_B1PL.dtype
    is_narrow = is_wide and latent_dim > 128  # what float32 leaves of shared memory
    rows = 16 if is_narrow else _ROWS
    # A tile is some queries with all heads, or some heads of one query.
    head_tiles = triton.cdiv(num_heads, rows)
    tile_queries = max(rows // num_heads, 1)
    num_tiles = min(num_tokens, triton.cdiv(num_tokens, tile_queries) + num_requests)
    num_chunks = triton.cdiv(block_table.shape[1] * block_tokens, _CHUNK)
    is_split = num_chunks > 1 and num_tiles * head_tiles < _ENOUGH_PROGRAMS
    num_parts = num_chunks if is_split else 1
    shape = (num_tokens, num_heads, num_parts)
    acc = torch.empty(*shape, latent_dim, dtype=f32, device=device) if is_split else out_THC
    sums = torch.empty(2, *shape, dtype=f32, device=device) if is_split else out_THC
    owners = (query_starts, kv_lens, num_requests)
    sizes = {
        "LATENT": latent_dim,
        "BLOCK_C": max(triton.next_power_of_2(latent_dim), 16),
        "CHUNK": _CHUNK,
    }
    _attend[(num_tiles, head_tiles, num_parts)](
        *(out_THC, acc, sums, q_THC, q_THr, cache_B1PL, *owners, block_table, slots),
        *(block_table.stride(0), *block_table.shape, num_blocks, block_tokens),
        *(q_THC.stride(0), q_THr.stride(0), num_heads, width, tile_queries),
        *(scale, num_tokens, 1 if is_split else num_chunks),
        **sizes,
        ROTATED=width - latent_dim,
        BLOCK_R=max(triton.next_power_of_2(width - latent_dim), 16),
        IS_SPLIT=is_split,
        IS_WIDE=is_wide,
        M=rows,
        N=16 if is_narrow else 32,
        num_warps=8,
        num_stages=1 if is_wide else 2,
    )
    if is_split:
        _merge[(num_tokens, num_heads)](
            *(out_THC, acc, sums, *owners, num_tokens, num_parts), **sizes
        )
    return out_THC


@triton.jit(do_not_specialize=["num_requests", "num_tokens", "chunks_per_program", *TABLE_SIZES])
def _attend(
    out, part_acc, part_sums, q, q_rotated, cache, query_starts, kv_lens, num_requests,
    block_table, slots, table_stride, num_slots, num_columns, num_blocks, block_tokens,
    q_stride, rotated_stride, num_heads, width, tile_queries, scale, num_tokens,
    chunks_per_program,
    LATENT: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, ROTATED: tl.constexpr,
    BLOCK_R: tl.constexpr, IS_SPLIT: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    part = tl.program_id(2)
    request, first_tile = find_owner(query_starts, num_requests, tile, tile_queries, _OWNERS)
    if request >= num_requests:
        return
    start = tl.load(query_starts + request)
    num_queries = tl.load(query_starts + request + 1) - start
    before = tl.load(kv_lens + request) - num_queries
    slot = tl.load(slots + request)
    first_query = (tile - first_tile) * tile_queries
    high = before + tl.minimum(first_query + tile_queries, num_queries)
    first_chunk = part * chunks_per_program
    end_chunk = tl.minimum((part + 1) * chunks_per_program, (high + CHUNK - 1) // CHUNK)
    if IS_SPLIT and first_chunk >= end_chunk:
        return

    place_M = tl.program_id(1) * M + tl.arange(0, M)
    query_M = first_query + place_M // num_heads
    head_M = place_M % num_heads
    is_row_M = (place_M < tile_queries * num_heads) & (query_M < num_queries)
    position_M = before + query_M
    token_M = (start + query_M).to(tl.int64)
    c, r = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    is_c, is_r = c < LATENT, r < ROTATED
    is_q_MC = is_row_M[:, None] & is_c[None, :]
    q_MC = tl.load(
        q + token_M[:, None] * q_stride + head_M[:, None] * LATENT + c[None, :],
        mask=is_q_MC, other=0.0,
    )  # fmt: skip
    q_Mr = tl.load(
        q_rotated + token_M[:, None] * rotated_stride + head_M[:, None] * ROTATED + r[None, :],
        mask=is_row_M[:, None] & is_r[None, :], other=0.0,
    )  # fmt: skip
    if IS_WIDE:
        q_MC, q_Mr = q_MC.to(tl.float32), q_Mr.to(tl.float32)

    all_max_M = tl.full([M], float("-inf"), tl.float32)
    all_sum_M = tl.zeros([M], tl.float32)
    all_acc_MC = tl.zeros([M, BLOCK_C], tl.float32)
    for chunk in range(first_chunk, end_chunk):
        max_M = tl.full([M], float("-inf"), tl.float32)
        sum_M = tl.zeros([M], tl.float32)
        acc_MC = tl.zeros([M, BLOCK_C], tl.float32)
        for base in range(chunk * CHUNK, tl.minimum((chunk + 1) * CHUNK, high), N):
            key_N = base + tl.arange(0, N)
            row_N = cache_row(
                block_table, slot, key_N, key_N < high, table_stride, num_slots, num_columns,
                num_blocks, 1, block_tokens, 0,
            )  # fmt: skip
            is_key_N = row_N >= 0
            place_N = cache + row_N * width
            latent_NC = tl.load(
                place_N[:, None] + c[None, :], mask=is_key_N[:, None] & is_c[None, :], other=0.0
            )
            k_Nr = tl.load(
                place_N[:, None] + LATENT + r[None, :],
                mask=is_key_N[:, None] & is_r[None, :], other=0.0,
            )  # fmt: skip
            if IS_WIDE:
                latent_NC, k_Nr = latent_NC.to(tl.float32), k_Nr.to(tl.float32)
            score_MN = tl.dot(q_MC, tl.trans(latent_NC), input_precision="ieee")
            score_MN = tl.dot(q_Mr, tl.trans(k_Nr), score_MN, input_precision="ieee")
            is_seen_MN = (key_N[None, :] <= position_M[:, None]) & is_key_N[None, :]
            score_MN = tl.where(is_seen_MN, score_MN * (scale * _LOG2_E), float("-inf"))
            new_max_M = tl.maximum(max_M, tl.max(score_MN, 1))
            finite_M = tl.where(new_max_M == float("-inf"), 0.0, new_max_M)
            weight_MN = tl.exp2(score_MN - finite_M[:, None])
            fade_M = tl.exp2(max_M - finite_M)
            sum_M = tl.fma(sum_M, fade_M, tl.sum(weight_MN, 1))
            acc_MC = tl.dot(
                weight_MN.to(latent_NC.dtype), latent_NC, acc_MC * fade_M[:, None],
                input_precision="ieee",
            )  # fmt: skip
            max_M = new_max_M
        all_max_M, fade_M, share_M = softmax_merge(all_max_M, max_M)
        all_sum_M = tl.fma(all_sum_M, fade_M, sum_M * share_M)
        all_acc_MC = tl.fma(all_acc_MC, fade_M[:, None], acc_MC * share_M[:, None])

    row_M = token_M * num_heads + head_M
    if IS_SPLIT:
        part_M = row_M * tl.num_programs(2) + part
        all_parts = num_tokens.to(tl.int64) * num_heads * tl.num_programs(2)
        tl.store(part_acc + part_M[:, None] * LATENT + c[None, :], all_acc_MC, mask=is_q_MC)
        tl.store(part_sums + part_M, all_max_M, mask=is_row_M)
        tl.store(part_sums + all_parts + part_M, all_sum_M, mask=is_row_M)
    else:
        share_M = tl.where(all_sum_M == 0.0, 0.0, 1.0 / all_sum_M)
        out_MC = all_acc_MC * share_M[:, None]
        tl.store(out + row_M[:, None] * LATENT + c[None, :], out_MC, mask=is_q_MC)


@triton.jit(do_not_specialize=["num_requests", "num_tokens", "num_parts"])
def _merge(
    out, part_acc, part_sums, query_starts, kv_lens, num_requests, num_tokens, num_parts,
    LATENT: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    request, _ = find_owner(query_starts, num_requests, token, 1, _OWNERS)
    if request >= num_requests:
        return
    stop = tl.load(query_starts + request + 1)
    position = tl.load(kv_lens + request) - stop + token
    row = token.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    all_parts = num_tokens.to(tl.int64) * tl.num_programs(1) * num_parts
    c = tl.arange(0, BLOCK_C)
    all_max = float("-inf")
    all_sum = 0.0
    all_acc_C = tl.zeros([BLOCK_C], tl.float32)
    for chunk in range(tl.minimum(position // CHUNK + 1, num_parts)):
        part = row * num_parts + chunk
        acc_C = tl.load(part_acc + part * LATENT + c, mask=c < LATENT, other=0.0)
        all_max, fade, share = softmax_merge(all_max, tl.load(part_sums + part))
        all_sum = tl.fma(all_sum, fade, tl.load(part_sums + all_parts + part) * share)
        all_acc_C = tl.fma(all_acc_C, fade, acc_C * share)
    share = tl.where(all_sum == 0.0, 0.0, 1.0 / all_sum)
    tl.store(out + row * LATENT + c, all_acc_C * share, mask=c < LATENT)
