# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(7)
    logits = 3 * torch.randn(64, 1000, generator=g)
    ties = torch.randint(0, 4, (64, 50), generator=g).float()
    awkward = torch.randn(4, 40, generator=g)
    awkward[0, 3], awkward[1], awkward[2, :] = torch.nan, torch.nan, -torch.inf
    awkward[3, 5:] = -torch.inf
    large = 2 * torch.randn(3, 49152, generator=g)
    flat = torch.zeros(16, 5000)
    made = [
        _case("greedy", logits, device, temperature=0.0),
        _case("greedy ties", ties, device, temperature=0.0),
        _case("greedy awkward", awkward, device, temperature=0.0),
        _case("awkward", awkward, device, temperature=1.0),
        _case("whole distribution", logits, device, temperature=1.0),
        _case("cold", logits, device, temperature=0.05),
        _case("hot", logits, device, temperature=5.0),
        _case("ties", ties, device, temperature=1.0, top_k=20),
        _case("flat", flat, device, temperature=1.0, top_k=700, top_p=0.9),
        _case("flat whole", flat, device, temperature=1.0),
        _case("top 1", logits, device, temperature=1.0, top_k=1),
        _case("top 40", logits, device, temperature=0.8, top_k=40),
        _case("top_k above V", ties, device, temperature=0.8, top_k=4000),
        _case("top_p", logits, device, temperature=1.0, top_p=0.9),
        _case("tiny top_p", logits, device, temperature=1.0, top_p=1e-6),
        _case("min_p", logits, device, temperature=1.0, min_p=0.1),
        _case("min_p 1", ties, device, temperature=1.0, min_p=1.0),
        _case("all filters", logits, device, temperature=0.9, top_k=50, top_p=0.8, min_p=0.02),
        _case("large", large, device, temperature=1.0, top_k=64, top_p=0.95),
        _case("large whole", large, device, temperature=1.5),
        _case("none", logits[:0], device, temperature=1.0),
    ]
    mixed = _case("mixed", logits, device, temperature=1.0)
    temperature_S = torch.rand(64, generator=g).where(torch.rand(64, generator=g) > 0.3, 0.0)
    top_k_S = torch.randint(0, 60, (64,), generator=g).int()
    args = (mixed.args[0], temperature_S.to(device), top_k_S.to(device), *mixed.args[3:])
    return [*made, Case(name="mixed", args=args, rtol=0, atol=0)]


def benches(device: str) -> list[Case]:
    made = []
    for vocabulary in (49152, 262144):
        for num_rows in (1, 8):
            logits = 3 * torch.randn(num_rows, vocabulary, generator=generator(8))
            made += [
                _case(f"greedy {num_rows}x{vocabulary}", logits, device, temperature=0.0),
                _case(f"whole {num_rows}x{vocabulary}", logits, device, temperature=1.0),
                _case(
                    f"top_k 40, top_p 0.95 {num_rows}x{vocabulary}",
                    *(logits, device),
                    temperature=0.7,
                    top_k=40,
                    top_p=0.95,
                ),
            ]
    return made


def parts(case: Case) -> list[Part]:
    num_rows = case.args[0].shape[0]
    return [rows_part(case, rows, row_args=tuple(range(7))) for rows in row_slices(num_rows)]


def _case(
    name: str,
    logits_SV: Tensor,
    device: str,
    *,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Case:
    num_rows = logits_SV.shape[0]

    def column(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((num_rows,), value, dtype=dtype)

    args: tuple[Any, ...] = (
        logits_SV,
        column(temperature, torch.float32),
        column(top_k, torch.int32),
        column(top_p, torch.float32),
        column(min_p, torch.float32),
        torch.arange(num_rows) * 1_000_003 - 17,
        torch.arange(num_rows, dtype=torch.int32) + 5,
    )
    return Case(
        name=name,
        args=tuple(a.to(device) for a in args),
        rtol=0,
        atol=0,
        num_bytes=4 * logits_SV.numel(),
    )
