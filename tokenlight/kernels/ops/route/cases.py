# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part

QWEN3 = {"top_k": 8, "renormalise": True}
DEEPSEEK_V2 = {"top_k": 6, "num_groups": 8, "top_groups": 3, "scale": 16.0}
DEEPSEEK_V3 = {
    "top_k": 8, "scoring": "sigmoid", "num_groups": 8, "top_groups": 4, "group_best": 2,
    "renormalise": True, "scale": 2.5,
}  # fmt: skip


def cases(device: str) -> list[Case]:
    ties = torch.tensor([[1.0, 3, 3, 0, 3, 1, 1, 0], [2.0] * 8, [0.0, -1, 5, 5, 5, 5, -1, 0]])
    made = [
        _case("qwen3", _logits(40, 128), QWEN3),
        _case("deepseek v2", _logits(33, 160), DEEPSEEK_V2),
        _case("deepseek v3", _logits(33, 256), DEEPSEEK_V3, biased=True),
        _case("kimi k2", _logits(5, 384), {**DEEPSEEK_V3, "num_groups": 1, "top_groups": 1}, True),
        _case("gpt-oss", _logits(17, 32), {"top_k": 4, "renormalise": True}, True),
        _case("all of a few", _logits(3, 5), {"top_k": 5}),
        _case("one", _logits(9, 3), {"top_k": 1, "scoring": "sigmoid"}),
        _case("ties", ties, {"top_k": 3}),
        _case("ties of groups", ties, {"top_k": 3, "num_groups": 4, "top_groups": 2}),
        _case("far apart", 5 * _logits(7, 24), {"top_k": 6, "renormalise": True}),
        _case("empty", _logits(0, 16), QWEN3),
    ]
    return [_on(case, device) for case in made]


def benches(device: str) -> list[Case]:
    return [
        _on(_case(f"{model} {t}", _logits(t, experts), options), device)
        for t in (1, 8, 512)
        for model, experts, options in (("qwen3", 128, QWEN3), ("deepseek v3", 256, DEEPSEEK_V3))
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _logits(num_tokens: int, num_experts: int) -> torch.Tensor:
    return 2 * torch.randn(num_tokens, num_experts, generator=generator(num_experts))


def _case(
    name: str, logits_TE: torch.Tensor, options: dict[str, Any], biased: bool = False
) -> Case:
    num_tokens, num_experts = logits_TE.shape
    bias_E = 0.1 * torch.randn(num_experts, generator=generator(1)) if biased else None
    return Case(
        name=name,
        args=(logits_TE, bias_E),
        kwargs=options,
        activations=(0,),
        num_bytes=4 * num_tokens * (num_experts + 2 * options["top_k"]),
        num_flops=num_tokens * num_experts * 4,
    )


def _on(case: Case, device: str) -> Case:
    args = tuple(a if a is None else a.to(device) for a in case.args)
    return replace(case, args=args)
