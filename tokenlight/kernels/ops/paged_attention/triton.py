# SPDX-License-Identifier: Apache-2.0
"""Paged attention in Triton: one kernel for prefill, decode and what is between, and a merge.

A program takes a tile of one request's (query, head of the group) rows and one kv head, and walks
keys in chunks of _CHUNK positions that begin at multiples of it. Each chunk has a softmax of its
own; chunks are merged from the first to the last. Where there are few tiles, a program has one
chunk only and `_merge` does the same sums in the same order. So a row's bits depend on its own
position and keys, not on the batch, the chunking or the number of programs. `prefill` is without.

Rows of a tile: M; keys at a time: N; a group is the G heads of a kv head.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.paged_attention.contract import paged_attention
from tokenlight.kernels.ops.paged_attention.tiles import (
    FLOAT8_PREFILL,
    HOPPER_SHARED_BYTES,
    PREFILL,
    Tiles,
    in_chunks,
)
from tokenlight.kernels.triton.launch import CACHED, FLOATS, check_heads
from tokenlight.kernels.triton.math import softmax_merge, tanh
from tokenlight.kernels.triton.paged import TABLE_SIZES, find_owner

_CHUNK = 1024
_LOG2_E = tl.constexpr(1.4426950408889634)
_OWNERS = tl.constexpr(128)
# With fewer programs than this, chunks get programs of their own: two for each of 132 processors;
_ENOUGH_PROGRAMS = 264
# but not for more tokens: what chunks leave for the merge grows with both.
_SPLIT_TOKENS = 256
# From this many tokens of each request on, tiles are taller.
_PREFILL_TOKENS = 64


@paged_attention.implement("triton", device="cuda", dtypes=FLOATS, stored=CACHED, rank=PORTABLE)
def run(
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
    batch = (q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots, sinks_H)
    is_prefill, stored = _is_prefill(q_THd, slots), k_cache_BKPd.dtype
    tiles = in_chunks(q_THd.dtype, stored, q_THd.shape[2], is_prefill=is_prefill)
    return launch(*batch, tiles=tiles, options=(scale, window, softcap))


@paged_attention.implement(
    "triton_prefill",
    device="cuda",
    dtypes=FLOATS,
    stored=CACHED,
    rank=PORTABLE + 10,
    is_row_invariant=False,
)
def prefill(
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
    """Many queries of a request: one softmax over all of its keys, so not the bits of a decode."""
    batch = (q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots, sinks_H)
    if not _is_prefill(q_THd, slots):
        return run(*batch, scale=scale, window=window, softcap=softcap)
    tiles = FLOAT8_PREFILL if k_cache_BKPd.dtype.itemsize == 1 else PREFILL
    return launch(*batch, tiles=tiles, options=(scale, window, softcap), is_once=True)


def launch(
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None,
    *,
    tiles: Tiles,
    options: tuple[float, int, float],
    is_once: bool = False,
) -> Tensor:
    """Args as the contract's; `options` are its scale, window and softcap.

    `is_once`: no chunks, hence no programs of their own for them.
    """
    check_heads(q_THd)
    scale, window, softcap = options
    num_tokens, num_heads, head_dim = q_THd.shape
    num_blocks, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    out_THd = torch.empty_like(q_THd, memory_format=torch.contiguous_format)
    num_requests = len(slots)
    if not num_tokens or not num_requests:
        return out_THd
    group = num_heads // num_kv_heads
    if q_THd.dtype is not torch.float32:
        tiles = tiles.fitting(triton.next_power_of_2(head_dim), 2, _shared_bytes())
    rows = max(tiles.rows, triton.next_power_of_2(group))
    num_tiles = min(num_tokens, triton.cdiv(num_tokens, rows // group) + num_requests)
    num_chunks = triton.cdiv(block_table.shape[1] * block_tokens, _CHUNK)
    is_small = num_tokens <= _SPLIT_TOKENS and num_tiles * num_kv_heads < _ENOUGH_PROGRAMS
    is_split = is_small and not is_once and num_chunks > 1
    num_parts = num_chunks if is_split else 1
    shape = (num_tokens, num_heads, num_parts)
    f32 = torch.float32
    acc = torch.empty(*shape, head_dim, dtype=f32, device=q_THd.device) if is_split else out_THd
    sums = torch.empty(2, *shape, dtype=f32, device=q_THd.device) if is_split else out_THd
    owners, sinks = (query_starts, kv_lens, num_requests), out_THd if sinks_H is None else sinks_H
    consts = {
        "HAS_SINKS": sinks_H is not None,
        "HEAD_DIM": head_dim,
        "BLOCK_D": max(triton.next_power_of_2(head_dim), 16),
        "CHUNK": _CHUNK,
    }
    _attend[(num_tiles, num_kv_heads, num_parts)](
        *(out_THd, acc, sums, q_THd, k_cache_BKPd, v_cache_BKPd, *owners, block_table, slots),
        *(sinks, block_table.stride(0), *block_table.shape, num_blocks, q_THd.stride(0)),
        *(window, scale, softcap, num_tokens, 1 if is_split else num_chunks),
        **consts,
        GROUP=group,
        KV_HEADS=num_kv_heads,
        BLOCK_TOKENS=block_tokens,
        IS_SPLIT=is_split,
        IS_ONCE=is_split or is_once,
        HAS_CAP=softcap != 0,
        IS_WIDE=q_THd.dtype is f32 or k_cache_BKPd.dtype in FLOATS - {q_THd.dtype},
        M=rows,
        N=tiles.keys,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    if is_split:
        _merge[(num_tokens, num_heads)](
            *(out_THd, acc, sums, *owners, sinks, window, num_tokens, num_parts), **consts
        )
    return out_THd


@functools.cache
def _shared_bytes() -> int:
    """That a block of the current device may have; without one, kernels are compiled for Hopper."""
    if not torch.cuda.is_available():
        return HOPPER_SHARED_BYTES
    utils = triton.runtime.driver.active.utils
    return int(utils.get_device_properties(torch.cuda.current_device())["max_shared_mem"])


def _is_prefill(q_THd: Tensor, slots: Tensor) -> bool:
    """Whether tall tiles pay, and their sums have registers."""
    return (
        q_THd.dtype is not torch.float32
        and q_THd.shape[2] <= 128
        and len(slots) > 0
        and q_THd.shape[0] // len(slots) >= _PREFILL_TOKENS
    )


@triton.jit(
    do_not_specialize=["num_requests", "window", "num_tokens", "chunks_per_program", *TABLE_SIZES]
)
def _attend(
    out, part_acc, part_sums, q, k_cache, v_cache, query_starts, kv_lens, num_requests,
    block_table, slots, sinks, table_stride, num_slots, num_columns, num_blocks, q_stride,
    window, scale, cap, num_tokens, chunks_per_program,
    HAS_SINKS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, CHUNK: tl.constexpr,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    IS_SPLIT: tl.constexpr, IS_ONCE: tl.constexpr, HAS_CAP: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    # The last queries see the most keys: they begin first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    TILE_QUERIES: tl.constexpr = M // GROUP
    request, first_tile = find_owner(query_starts, num_requests, tile, TILE_QUERIES, _OWNERS)
    if request >= num_requests:
        return
    start = tl.load(query_starts + request)
    num_queries = tl.load(query_starts + request + 1) - start
    before = tl.load(kv_lens + request) - num_queries
    slot = tl.load(slots + request)
    first_query = (tile - first_tile) * TILE_QUERIES

    # What some query of the tile sees: from `low` to below `high`, and nothing beyond the table.
    low = before + first_query - window + 1
    low = tl.where(window > 0, tl.maximum(low, 0), 0)
    high = before + tl.minimum(first_query + TILE_QUERIES, num_queries)
    high = tl.minimum(high, num_columns * BLOCK_TOKENS)
    high = tl.where((slot >= 0) & (slot < num_slots), high, 0)
    table_row = block_table + slot.to(tl.int64) * table_stride
    first_chunk = tl.maximum(part * chunks_per_program, low // CHUNK)
    end_chunk = tl.minimum((part + 1) * chunks_per_program, (high + CHUNK - 1) // CHUNK)
    if IS_SPLIT:
        if first_chunk >= end_chunk:
            return

    m_M = tl.arange(0, M)
    query_M = first_query + m_M // GROUP
    head_M = kv_head * GROUP + m_M % GROUP
    is_row_M = (m_M < TILE_QUERIES * GROUP) & (query_M < num_queries)
    position_M = before + query_M
    token_M = (start + query_M).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    place_Md = token_M[:, None] * q_stride + head_M[:, None] * HEAD_DIM + d[None, :]
    is_q_Md = is_row_M[:, None] & (d < HEAD_DIM)[None, :]
    q_Md = tl.load(q + place_Md, mask=is_q_Md, other=0.0)
    if IS_WIDE:
        q_Md = q_Md.to(tl.float32)

    if IS_ONCE:
        first = tl.maximum(first_chunk * CHUNK, low // N * N)
        all_max_M, all_sum_M, all_acc_Md = _soften(
            q_Md, position_M, k_cache, v_cache, table_row, kv_head, before + first_query, first,
            tl.minimum(end_chunk * CHUNK, high), low, high, num_blocks, window, scale, cap,
            HEAD_DIM, BLOCK_D, KV_HEADS, BLOCK_TOKENS, HAS_CAP, M, N,
        )  # fmt: skip
    else:
        all_max_M = tl.full([M], float("-inf"), tl.float32)
        all_sum_M = tl.zeros([M], tl.float32)
        all_acc_Md = tl.zeros([M, BLOCK_D], tl.float32)
        for chunk in range(first_chunk, end_chunk):
            first = tl.maximum(chunk * CHUNK, low // N * N)
            max_M, sum_M, acc_Md = _soften(
                q_Md, position_M, k_cache, v_cache, table_row, kv_head, before + first_query, first,
                tl.minimum((chunk + 1) * CHUNK, high), low, high, num_blocks, window, scale, cap,
                HEAD_DIM, BLOCK_D, KV_HEADS, BLOCK_TOKENS, HAS_CAP, M, N,
            )  # fmt: skip
            all_max_M, fade_M, share_M = softmax_merge(all_max_M, max_M)
            all_sum_M = tl.fma(all_sum_M, fade_M, sum_M * share_M)
            all_acc_Md = tl.fma(all_acc_Md, fade_M[:, None], acc_Md * share_M[:, None])

    row_M = token_M * (KV_HEADS * GROUP) + head_M
    if IS_SPLIT:
        part_M = row_M * tl.num_programs(2) + part
        num_parts = num_tokens.to(tl.int64) * (KV_HEADS * GROUP) * tl.num_programs(2)
        tl.store(part_acc + part_M[:, None] * HEAD_DIM + d[None, :], all_acc_Md, mask=is_q_Md)
        tl.store(part_sums + part_M, all_max_M, mask=is_row_M)
        tl.store(part_sums + num_parts + part_M, all_sum_M, mask=is_row_M)
    else:
        sink_M = tl.full([M], float("-inf"), tl.float32)
        if HAS_SINKS:
            sink_M = tl.load(sinks + head_M, mask=is_row_M, other=0.0) * _LOG2_E
        share_M = _share(all_max_M, all_sum_M, sink_M)
        out_Md = all_acc_Md * share_M[:, None]
        tl.store(out + row_M[:, None] * HEAD_DIM + d[None, :], out_Md, mask=is_q_Md)


@triton.jit
def _soften(
    q_Md, position_M, k_cache, v_cache, table_row, kv_head, first_position, first, stop, low, high,
    num_blocks, window, scale, cap, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    KV_HEADS: tl.constexpr, BLOCK_TOKENS: tl.constexpr, HAS_CAP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """One softmax over keys from `first` to below `stop`: its maximum, its total and its sums."""
    max_M = tl.full([M], float("-inf"), tl.float32)
    sum_M = tl.zeros([M], tl.float32)
    acc_Md = tl.zeros([M, BLOCK_D], tl.float32)
    # Keys below this are seen by every query of the tile: no mask.
    all_seen = tl.where(window > 0, 0, (first_position + 1) // N * N)
    middle = tl.maximum(tl.minimum(all_seen, stop), first)
    max_M, sum_M, acc_Md = _walk(
        q_Md, position_M, max_M, sum_M, acc_Md, k_cache, v_cache, table_row, kv_head,
        first, middle, low, high, num_blocks, window, scale, cap,
        HEAD_DIM, BLOCK_D, KV_HEADS, BLOCK_TOKENS, HAS_CAP, False, N,
    )  # fmt: skip
    return _walk(
        q_Md, position_M, max_M, sum_M, acc_Md, k_cache, v_cache, table_row, kv_head,
        middle, stop, low, high, num_blocks, window, scale, cap,
        HEAD_DIM, BLOCK_D, KV_HEADS, BLOCK_TOKENS, HAS_CAP, True, N,
    )  # fmt: skip


@triton.jit
def _walk(
    q_Md, position_M, max_M, sum_M, acc_Md, k_cache, v_cache, table_row, kv_head,
    first, stop, low, high, num_blocks, window, scale, cap,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, KV_HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, HAS_CAP: tl.constexpr, IS_MASKED: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Add keys from `first` to below `stop` to a softmax.

    A key that all rows see adds the same bits with a mask and without one: what a compiler could
    contract is written as it shall round.
    """
    d = tl.arange(0, BLOCK_D)
    factor = _LOG2_E if HAS_CAP else scale * _LOG2_E
    # Blocks are looked up a turn ahead: so the addresses of keys wait for no load of their own
    # turn, and the compiler fetches keys while it multiplies those before them.
    block_N = _blocks(table_row, first + tl.arange(0, N), low, high, BLOCK_TOKENS)
    for base in range(first, stop, N):
        key_N = base + tl.arange(0, N)
        next_block_N = _blocks(table_row, key_N + N, low, high, BLOCK_TOKENS)
        is_key_N = (block_N >= 0) & (block_N < num_blocks)
        # A block outside the pool is not followed: its keys are those of the first.
        row_N = tl.where(is_key_N, block_N, 0).to(tl.int64) * KV_HEADS + kv_head
        row_N = row_N * BLOCK_TOKENS + key_N % BLOCK_TOKENS
        if IS_MASKED:
            is_k_Nd = is_key_N[:, None] & (d < HEAD_DIM)[None, :]
        else:
            is_k_Nd = (d < HEAD_DIM)[None, :]
        place_Nd = row_N[:, None] * HEAD_DIM + d[None, :]
        k_Nd = tl.load(k_cache + place_Nd, mask=is_k_Nd, other=0.0).to(q_Md.dtype)
        score_MN = tl.dot(q_Md, tl.trans(k_Nd), input_precision="ieee")
        if HAS_CAP:
            score_MN = cap * tanh(score_MN * scale / cap)
        if IS_MASKED:
            is_seen_MN = (key_N[None, :] <= position_M[:, None]) & is_key_N[None, :]
            is_seen_MN &= (window == 0) | (key_N[None, :] > position_M[:, None] - window)
            score_MN = tl.where(is_seen_MN, score_MN, float("-inf"))
        new_max_M = tl.maximum(max_M, tl.max(score_MN, 1) * factor)
        finite_M = tl.where(new_max_M == float("-inf"), 0.0, new_max_M)
        weight_MN = tl.exp2(tl.fma(score_MN, factor, -finite_M[:, None]))
        fade_M = tl.exp2(max_M - finite_M)
        v_Nd = tl.load(v_cache + place_Nd, mask=is_k_Nd, other=0.0).to(q_Md.dtype)
        sum_M = tl.fma(sum_M, fade_M, tl.sum(weight_MN, 1))
        acc_Md = tl.dot(
            weight_MN.to(v_Nd.dtype), v_Nd, acc_Md * fade_M[:, None], input_precision="ieee"
        )
        max_M = new_max_M
        block_N = next_block_N
    return max_M, sum_M, acc_Md


@triton.jit
def _blocks(table_row, key_N, low, high, BLOCK_TOKENS: tl.constexpr):
    """The blocks that a request's keys lie in; -1 for keys outside of `low` to below `high`."""
    is_wanted_N = (key_N >= low) & (key_N < high)
    return tl.load(table_row + key_N // BLOCK_TOKENS, mask=is_wanted_N, other=-1)


@triton.jit
def _share(maximum, total, sink):
    """What a row's sums are multiplied by in the end: one over the total; 0 of nothing."""
    _, fade, extra = softmax_merge(maximum, sink)
    total = tl.fma(total, fade, extra)
    return tl.where(total == 0.0, 0.0, fade / total)


@triton.jit(do_not_specialize=["num_requests", "window", "num_tokens", "num_parts"])
def _merge(
    out, part_acc, part_sums, query_starts, kv_lens, num_requests, sinks, window, num_tokens,
    num_parts, HAS_SINKS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    head = tl.program_id(1)
    request, _ = find_owner(query_starts, num_requests, token, 1, _OWNERS)
    if request >= num_requests:
        return
    stop = tl.load(query_starts + request + 1)
    position = tl.load(kv_lens + request) - stop + token
    low = tl.where(window > 0, tl.maximum(position - window + 1, 0), 0)
    row = token.to(tl.int64) * tl.num_programs(1) + head
    all_parts = num_tokens.to(tl.int64) * tl.num_programs(1) * num_parts
    d = tl.arange(0, BLOCK_D)
    all_max = float("-inf")
    all_sum = 0.0
    all_acc_d = tl.zeros([BLOCK_D], tl.float32)
    for chunk in range(low // CHUNK, tl.minimum(position // CHUNK + 1, num_parts)):
        part = row * num_parts + chunk
        part_max = tl.load(part_sums + part)
        part_sum = tl.load(part_sums + all_parts + part)
        acc_d = tl.load(part_acc + part * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
        all_max, fade, share = softmax_merge(all_max, part_max)
        all_sum = tl.fma(all_sum, fade, part_sum * share)
        all_acc_d = tl.fma(all_acc_d, fade, acc_d * share)
    sink = float("-inf")
    if HAS_SINKS:
        sink = tl.load(sinks + head) * _LOG2_E
    out_d = all_acc_d * _share(all_max, all_sum, sink)
    tl.store(out + row * HEAD_DIM + d, out_d, mask=d < HEAD_DIM)
