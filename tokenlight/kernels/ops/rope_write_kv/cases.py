# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices
from tokenlight.kernels.ops.paged_attention.cases import make_batch, pool_blocks

_MIXED = ((1, 1), (1, 30), (5, 5), (40, 61), (1, 16))


@dataclass(frozen=True, kw_only=True)
class _Heads:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotated: int
    has_norms: bool


_LLAMA = _Heads(num_heads=9, num_kv_heads=3, head_dim=64, rotated=64, has_norms=False)
_QWEN3 = _Heads(num_heads=8, num_kv_heads=2, head_dim=128, rotated=128, has_norms=True)
_ODD = _Heads(num_heads=2, num_kv_heads=2, head_dim=10, rotated=6, has_norms=True)


def cases(device: str) -> list[Case]:
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    f8 = torch.float8_e4m3fn
    made = [_case("llama", _MIXED, _LLAMA, dtype, device) for dtype in (f32, f16, bf16, f8)]
    made += [_case("qwen3", _MIXED, _QWEN3, dtype, device) for dtype in (f32, f16)]
    made.append(_case("part rotated", _MIXED, _ODD, f32, device))
    return [*made, _case("empty", (), _LLAMA, f16, device)]


def benches(device: str) -> list[Case]:
    requests = {"1": ((1, 300),), "8": ((1, 300),) * 8, "512": ((512, 512),)}
    return [
        _case(f"{name} {model}", r, heads, torch.float16, device)
        for name, r in requests.items()
        for model, heads in (("llama", _LLAMA), ("qwen3", _QWEN3))
    ]


def parts(case: Case) -> list[Part]:
    """Some tokens of one request at a time; what they wrote must be what the whole call wrote."""
    q, k, v, cos_sin, k_cache, v_cache, positions, query_starts, table, slots, *norms = case.args
    made = []
    for r in range(len(slots)):
        start, stop = query_starts[r : r + 2].tolist()
        for cut in row_slices(stop - start):
            rows = slice(start + cut.start, start + cut.stop)
            starts = torch.tensor([0, rows.stop - rows.start], dtype=torch.int32).to(q.device)
            part = Case(
                name=f"{case.name}[{rows.start}:{rows.stop}]",
                args=(
                    *(q[rows], k[rows], v[rows], cos_sin[rows], k_cache, v_cache, positions[rows]),
                    *(starts, table, slots[r : r + 1], *norms),
                ),
                kwargs=case.kwargs,
            )
            place, block_tokens = positions[rows].long(), k_cache.shape[2]
            blocks = table[slots[r].long(), place // block_tokens].long()
            made.append(
                Part(
                    case=part,
                    of_part=_picker(slice(None), blocks, place % block_tokens),
                    of_whole=_picker(rows, blocks, place % block_tokens),
                )
            )
    return made


def _picker(rows: slice, blocks: torch.Tensor, offsets: torch.Tensor) -> Any:
    return lambda outs: [outs[0][rows], *(out[blocks, :, offsets] for out in outs[1:])]


def _case(
    name: str,
    requests: tuple[tuple[int, int], ...],
    heads: _Heads,
    dtype: torch.dtype,
    device: str,
) -> Case:
    g = generator(7)
    num_blocks = pool_blocks(requests, 16)
    batch = make_batch(requests, 16, num_blocks)
    positions_T = torch.tensor([p for n, kv in requests for p in range(kv - n, kv)]).int()
    h, kv, d = heads.num_heads, heads.num_kv_heads, heads.head_dim
    fused = 3 * torch.randn(len(positions_T), h + 2 * kv, d, generator=g)
    q_THd, k_TKd, v_TKd = fused.split((h, kv, kv), dim=1)
    angles = positions_T[:, None] * 0.7 ** torch.arange(heads.rotated // 2)
    cache = torch.randn(num_blocks, kv, 16, d, generator=g).to(dtype)
    gains = 1 + 0.1 * torch.randn(2, d, generator=g)
    args = (
        *(q_THd, k_TKd, v_TKd, torch.cat([angles.cos(), angles.sin()], dim=-1).float()),
        *(cache, cache.flip(0).contiguous(), positions_T),
        *(batch.query_starts, batch.block_table, batch.slots),
    )
    norms = tuple(gain.to(device) if heads.has_norms else None for gain in gains)
    # A stored number may round the other way where the float32 before it differs in the last bit.
    steps = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float8_e4m3fn: 0.15}
    step = steps.get(dtype, 1e-5)
    return Case(
        name=f"{name} {str(dtype).removeprefix('torch.')}",
        args=(*(a.to(device) for a in args), *norms),
        kwargs={"eps": 1e-6},
        rtol=step,
        atol=2e-3 if dtype is torch.float8_e4m3fn else 1e-5,
        activations=(0, 1, 2, 10, 11),
        num_bytes=len(positions_T) * d * (8 * h + 2 * kv * (4 + cache.element_size())),
        num_flops=3 * len(positions_T) * (h + kv) * heads.rotated,
    )
