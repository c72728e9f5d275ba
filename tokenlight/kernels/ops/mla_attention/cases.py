# SPDX-License-Identifier: Apache-2.0
from typing import NamedTuple

import torch

from tokenlight.kernels.case import Case, Part, generator
from tokenlight.kernels.ops.paged_attention.cases import (
    Batch,
    cut_requests,
    make_batch,
    pool_blocks,
    request_part,
)


class Shape(NamedTuple):
    """A batch: (new tokens, tokens in the cache) of each request, heads, and sizes of a key."""

    requests: tuple[tuple[int, int], ...]
    num_heads: int
    latent_dim: int
    rotated_dim: int
    block_tokens: int
    dtype: torch.dtype


_MIXED = ((1, 1), (1, 300), (5, 5), (40, 90), (1, 16))


def cases(device: str) -> list[Case]:
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    shapes = {
        "mixed": Shape(_MIXED, 4, 64, 16, 16, f32),
        "as in DeepSeek": Shape(((1, 40), (3, 300)), 16, 512, 64, 16, f16),
        "many heads": Shape(((1, 20), (2, 9)), 128, 32, 8, 32, bf16),
        "odd sizes": Shape(_MIXED, 3, 20, 6, 4, f32),
        "empty": Shape((), 4, 32, 8, 16, f32),
    }
    return [_case(name, shape, device) for name, shape in shapes.items()]


def benches(device: str) -> list[Case]:
    batches = {
        "decode at 4K": ((1, 4096),),
        "8 decodes at 512": ((1, 512),) * 8,
        "prefill 128 at 2K": ((128, 2176),),
    }
    dtype = torch.float16 if device == "cpu" else torch.bfloat16
    return [_case(name, Shape(b, 16, 512, 64, 16, dtype), device) for name, b in batches.items()]


def parts(case: Case) -> list[Part]:
    q_THC, q_THr, cache, *batch = case.args
    return [
        request_part(case, (q_THC[rows], q_THr[rows], cache, *cut), rows)
        for rows, cut in cut_requests(Batch(*batch))
    ]


def _case(name: str, shape: Shape, device: str) -> Case:
    g = generator(9)
    num_blocks = pool_blocks(shape.requests, shape.block_tokens)
    batch = make_batch(shape.requests, shape.block_tokens, num_blocks)
    width = shape.latent_dim + shape.rotated_dim
    cache = torch.full((num_blocks, 1, shape.block_tokens, width), torch.nan, dtype=shape.dtype)
    for slot, (_, kv_len) in zip(batch.slots.tolist(), shape.requests, strict=True):
        place = torch.arange(kv_len)
        blocks = batch.block_table[slot, place // shape.block_tokens].long()
        rows = torch.randn(kv_len, width, generator=g)
        cache[blocks, 0, place % shape.block_tokens] = rows.to(shape.dtype)
    num_tokens = sum(n for n, _ in shape.requests)
    fused = torch.randn(num_tokens, shape.num_heads * width, generator=g)
    q_TD, rotated_TD = fused.split(
        [shape.num_heads * shape.latent_dim, shape.num_heads * shape.rotated_dim], dim=1
    )
    queries = (q.unflatten(1, (shape.num_heads, -1)) for q in (q_TD, rotated_TD))
    pairs = sum(n * kv - n * (n - 1) // 2 for n, kv in shape.requests)
    return Case(
        name=f"{name} {str(shape.dtype).removeprefix('torch.')}",
        args=tuple(a.to(device) for a in (*queries, cache, *batch)),
        kwargs={"scale": width**-0.5},
        rtol=1e-4,
        atol=2e-5,
        activations=(0, 1),
        num_bytes=sum(kv for _, kv in shape.requests) * width * cache.element_size(),
        num_flops=2 * pairs * shape.num_heads * (width + shape.latent_dim),
    )
