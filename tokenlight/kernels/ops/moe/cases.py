# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.tile16 import pack_tile16
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight


class Shape(NamedTuple):
    """Tokens, experts in all, chosen per token, hidden and inner features."""

    tokens: int
    experts: int
    chosen: int
    dim: int
    inner: int


CLAMPED = {"limit": 1.5, "alpha": 1.702, "shift": 1.0}


def cases(device: str) -> list[Case]:
    made = []
    for name, weight_format in WEIGHTS.items():
        size = max(32, weight_format.block_elements)
        made.append(_case(name, name, Shape(9, 5, 2, size, size), device))
    made += [
        _case("q4_k/tile16", "q6_k/tile16", Shape(1, 8, 2, 512, 256), device),
        _case("q8_0/tile16", "q8_0/tile16", Shape(150, 2, 1, 64, 96), device),
        _case("mxfp4/tile16", "mxfp4/tile16", Shape(20, 4, 2, 64, 160), device, options=CLAMPED),
        _case("f32", "f32", Shape(3, 4, 2, 20, 7), device, options=CLAMPED),
        _case("bf16", "f16", Shape(33, 6, 3, 48, 80), device),
        _case("f32", "q4_0/tile16", Shape(4, 3, 3, 8, 32), device, here=slice(1, 2)),
        _case("q8_0/tile16", "f32", Shape(7, 4, 2, 32, 24), device, here=slice(2, 4)),
        _case("f32", "f32", Shape(0, 4, 2, 16, 16), device),
    ]
    return made


def benches(device: str) -> list[Case]:
    """One rank's layer of Qwen3-30B-A3B and of gpt-oss-20b, fewer experts than they have."""
    qwen3 = {t: Shape(t, 32, 8, 2048, 768) for t in (1, 8, 512)}
    if device != "cpu":
        return [_case("bf16", "bf16", s, device) for s in qwen3.values()]
    gpt_oss = {t: Shape(t, 8, 4, 2880, 2880) for t in (1, 8, 128)}
    made = [_case("q4_k/tile16", "q6_k/tile16", s, device) for s in qwen3.values()]
    return made + [
        _case("mxfp4/tile16", "mxfp4/tile16", s, device, options=CLAMPED) for s in gpt_oss.values()
    ]


def parts(case: Case) -> list[Part]:
    rows_of = row_slices(case.args[0].shape[0])
    return [rows_part(case, rows, row_args=(0, 1, 2)) for rows in rows_of]


def _stack(name: str, count: int, n: int, k: int, device: str) -> tuple[Tensor, Format]:
    weight_format = WEIGHTS[name]
    rows, rows_format = make_weight(weight_format.name, count * n, k, device)
    each = rows.view(count, n, -1)
    if weight_format.layout == "tile16":
        return torch.stack([pack_tile16([expert], rows_format) for expert in each]), weight_format
    return each, rows_format


def _case(
    gate_up_name: str,
    down_name: str,
    shape: Shape,
    device: str,
    *,
    here: slice | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Case:
    g = generator(sum(shape))
    gate_up, gate_up_format = _stack(
        gate_up_name, shape.experts, 2 * shape.inner, shape.dim, device
    )
    down, down_format = _stack(down_name, shape.experts, shape.dim, shape.inner, device)
    experts_TA = torch.rand(shape.tokens, shape.experts, generator=g).argsort(-1)
    weights_TA = torch.rand(shape.tokens, shape.chosen, generator=g)
    has_bias = bool(options)
    biases = [
        torch.randn(shape.experts, n, generator=g).to(device) if has_bias else None
        for n in (2 * shape.inner, shape.dim)
    ]
    if here is not None:
        gate_up, down = gate_up[here].contiguous(), down[here].contiguous()
        options = {**options, "first_expert": here.start}
    active = min(shape.experts, shape.tokens * shape.chosen)
    expert_bytes = sum(w[0].numel() * w.element_size() for w in (gate_up, down))
    return Case(
        name=f"{gate_up_name} {down_name} {'x'.join(map(str, shape))}"
        + (f" {here.start}-{here.stop}" if here else ""),
        args=(
            torch.randn(shape.tokens, shape.dim, generator=g).to(device),
            experts_TA[:, : shape.chosen].int().contiguous().to(device),
            weights_TA.to(device),
            *(gate_up, down, *biases),
        ),
        kwargs={"format": gate_up_format, "down_format": down_format, **options},
        rtol=1e-3,
        atol=1e-3,
        activations=(0,),
        num_bytes=active * expert_bytes + 8 * shape.tokens * shape.dim,
        num_flops=6 * shape.tokens * shape.chosen * shape.dim * shape.inner,
    )
