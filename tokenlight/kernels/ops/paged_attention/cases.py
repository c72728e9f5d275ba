# SPDX-License-Identifier: Apache-2.0
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator


class Shape(NamedTuple):
    """A batch: (new tokens, tokens in the cache) of each request, heads, and block size."""

    requests: tuple[tuple[int, int], ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: torch.dtype


class Batch(NamedTuple):
    """What addresses a paged cache, in the order of the contract."""

    query_starts: Tensor
    kv_lens: Tensor
    block_table: Tensor
    slots: Tensor


_MIXED = ((1, 1), (1, 300), (5, 5), (40, 300), (1, 16), (17, 33))


def cases(device: str) -> list[Case]:
    made = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        made.append(_case("mixed", Shape(_MIXED, 9, 3, 64, 16, dtype), device))
        made.append(_case("long", Shape(((1, 1100), (3, 777)), 4, 1, 32, 32, dtype), device))
    f32, f16 = torch.float32, torch.float16
    made += [
        _case("multi-head", Shape(_MIXED, 4, 4, 16, 8, f16), device),
        _case("one kv head", Shape(_MIXED, 8, 1, 128, 64, f16), device),
        _case("head of 80", Shape(_MIXED, 2, 2, 80, 16, f32), device),
        _case("head of 256", Shape(((1, 600), (20, 20)), 4, 2, 256, 16, f16), device),
        _case("tiny head", Shape(_MIXED, 2, 1, 8, 4, f32), device),
        _case("blocks of one", Shape(((3, 9), (1, 40)), 2, 1, 16, 1, f32), device),
        _case("window", Shape(_MIXED, 9, 3, 64, 16, f16), device, window=50),
        _case("window 1", Shape(_MIXED, 2, 1, 16, 16, f32), device, window=1),
        _case("window 600", Shape(((1, 1500), (30, 900)), 2, 1, 64, 16, f16), device, window=600),
        _case("softcap", Shape(_MIXED, 9, 3, 64, 16, f16), device, softcap=2.0),
        _case("sinks", Shape(_MIXED, 9, 3, 64, 16, f16), device, sinks=True),
        _case("sinks in a window", Shape(_MIXED, 8, 1, 16, 8, f32), device, window=9, sinks=True),
        _case("prefill", Shape(((600, 600),), 6, 2, 64, 16, f16), device),
        _case("append", Shape(((300, 1300),), 4, 2, 32, 16, f16), device),
        _case("empty", Shape((), 6, 2, 64, 16, f16), device),
        _case("mixed", Shape(_MIXED, 9, 3, 64, 16, torch.float8_e4m3fn), device),
        _case("window", Shape(_MIXED, 8, 1, 32, 8, torch.float8_e4m3fn), device, window=50),
    ]
    return made + _few_queries(device) + _prefills(device)


def _prefills(device: str) -> list[Case]:
    """Many queries of each request, which GPUs have a kernel for: ends on and off its tiles."""
    bf16, f8 = torch.bfloat16, torch.float8_e4m3fn
    two = ((70, 200), (129, 129))
    return [
        _case("small prefill", Shape(((66, 80),), 2, 1, 16, 16, bf16), device),
        _case("prefill of two", Shape(two, 4, 2, 128, 16, bf16), device),
        _case("prefill of two", Shape(two, 4, 2, 64, 16, f8), device),
        _case("window in a prefill", Shape(two, 6, 2, 32, 8, bf16), device, window=90),
        _case("softcap in a prefill", Shape(two, 3, 1, 16, 4, bf16), device, softcap=2.0),
        _case("sinks in a prefill", Shape(two, 2, 2, 80, 1, bf16), device, sinks=True),
    ]


def _few_queries(device: str) -> list[Case]:
    """Decodes and drafts to verify, which GPUs have kernels for: lengths about where they split."""
    bf16 = torch.bfloat16
    lengths = (1, 63, 64, 65, 1024, 1025, 2500)
    decodes = tuple((1, length) for length in lengths)
    drafts = ((4, 300), (1, 20), (8, 1100), (3, 3))
    return [
        _case("decodes", Shape(decodes, 8, 2, 128, 16, bf16), device),
        _case("decodes of one kv head", Shape(decodes[-2:], 16, 1, 64, 64, bf16), device),
        _case("drafts", Shape(drafts, 8, 2, 64, 32, bf16), device),
        _case("drafts of wide heads", Shape(drafts, 4, 1, 128, 64, bf16), device),
        _case("sinks in decodes", Shape(decodes[-3:], 9, 3, 64, 16, bf16), device, sinks=True),
        _case("window in drafts", Shape(drafts, 8, 2, 128, 16, bf16), device, window=70),
        _case("softcap in decodes", Shape(decodes[:4], 8, 2, 128, 16, bf16), device, softcap=2.0),
    ]


def benches(device: str) -> list[Case]:
    f16 = torch.float16
    batches = {
        "decode at 512": ((1, 512),),
        "decode at 4K": ((1, 4096),),
        "decode at 32K": ((1, 32768),),
        "8 decodes at 512": ((1, 512),) * 8,
        "prefill 512": ((512, 512),),
        "prefill 512 at 4K": ((512, 4608),),
        "prefill 512 at 32K": ((512, 33280),),
    }
    if device != "cpu":  # the heads of an 8B model
        return [
            _case(name, Shape(b, 32, 8, 128, 16, torch.bfloat16), device)
            for name, b in batches.items()
        ]
    return [_case(name, Shape(b, 9, 3, 64, 16, f16), device) for name, b in batches.items()]


def parts(case: Case) -> list[Part]:
    q_THd, k_cache, v_cache, *batch = case.args[:7]
    return [
        request_part(case, (q_THd[rows], k_cache, v_cache, *cut, *case.args[7:]), rows)
        for rows, cut in cut_requests(Batch(*batch))
    ]


def cut_requests(batch: Batch) -> list[tuple[slice, Batch]]:
    """Each request alone; its last token alone, as a decode; and its queries in two chunks."""
    query_starts, kv_lens, block_table, slots = batch
    made = []
    for r, kv_len in enumerate(kv_lens.tolist()):
        start, stop = query_starts[r : r + 2].tolist()
        half = (start + stop) // 2
        for first, last in {(start, stop), (stop - 1, stop), (start, half), (half, stop)}:
            if first == last:
                continue
            cut = Batch(
                query_starts=torch.tensor([0, last - first], dtype=torch.int32),
                kv_lens=torch.tensor([kv_len - (stop - last)], dtype=torch.int32),
                block_table=block_table,
                slots=slots[r : r + 1],
            )
            made.append((slice(first, last), Batch(*(t.to(slots.device) for t in cut))))
    return made


def request_part(case: Case, args: tuple[Any, ...], rows: slice) -> Part:
    return Part(
        case=Case(name=f"{case.name}[{rows.start}:{rows.stop}]", args=args, kwargs=case.kwargs),
        of_part=lambda outs: outs,
        of_whole=lambda outs: [outs[0][rows]],
    )


def make_batch(requests: tuple[tuple[int, int], ...], block_tokens: int, num_blocks: int) -> Batch:
    """Blocks and slots in random order, unused columns of the table out of any pool."""
    g = generator(5)
    num_slots = len(requests) + 2
    slots = torch.randperm(num_slots, generator=g)[: len(requests)]
    free = torch.randperm(num_blocks, generator=g).tolist()
    columns = 2 + max((-(-kv // block_tokens) for _, kv in requests), default=0)
    block_table = torch.full((num_slots, columns), -7, dtype=torch.int32)
    for slot, (_, kv_len) in zip(slots.tolist(), requests, strict=True):
        for column in range(-(-kv_len // block_tokens)):
            block_table[slot, column] = free.pop()
    counts = torch.tensor([0, *(n for n, _ in requests)])
    return Batch(
        query_starts=counts.cumsum(0).int(),
        kv_lens=torch.tensor([kv for _, kv in requests], dtype=torch.int32),
        block_table=block_table,
        slots=slots.int(),
    )


def pool_blocks(requests: tuple[tuple[int, int], ...], block_tokens: int) -> int:
    return 3 + sum(-(-kv // block_tokens) for _, kv in requests)


def _case(
    name: str,
    shape: Shape,
    device: str,
    *,
    window: int = 0,
    softcap: float = 0.0,
    sinks: bool = False,
) -> Case:
    g = generator(4)
    num_blocks = pool_blocks(shape.requests, shape.block_tokens)
    batch = make_batch(shape.requests, shape.block_tokens, num_blocks)
    cache_shape = (num_blocks, shape.num_kv_heads, shape.block_tokens, shape.head_dim)
    k_cache, v_cache = (torch.full(cache_shape, torch.nan, dtype=shape.dtype) for _ in range(2))
    for slot, (_, kv_len) in zip(batch.slots.tolist(), shape.requests, strict=True):
        place = torch.arange(kv_len)
        blocks = batch.block_table[slot, place // shape.block_tokens].long()
        for cache in (k_cache, v_cache):
            rows = torch.randn(kv_len, shape.num_kv_heads, shape.head_dim, generator=g)
            cache[blocks, :, place % shape.block_tokens] = rows.to(shape.dtype)
    num_tokens = sum(n for n, _ in shape.requests)
    fused = torch.randn(num_tokens, shape.num_heads + 1, shape.head_dim, generator=g)
    sinks_H = [2 * torch.randn(shape.num_heads, generator=g)] if sinks else []
    kv_tokens = sum(kv for _, kv in shape.requests)
    pairs = sum(n * kv - n * (n - 1) // 2 for n, kv in shape.requests)
    return Case(
        name=f"{name} {str(shape.dtype).removeprefix('torch.')}",
        args=tuple(
            a.to(device) for a in (fused[:, : shape.num_heads], k_cache, v_cache, *batch, *sinks_H)
        ),
        kwargs={"scale": shape.head_dim**-0.5, "window": window, "softcap": softcap},
        rtol=1e-4,
        atol=1e-5,
        activations=(0,),
        num_bytes=2 * kv_tokens * shape.num_kv_heads * shape.head_dim * k_cache.element_size(),
        num_flops=4 * pairs * shape.num_heads * shape.head_dim,
    )
