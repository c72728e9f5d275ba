# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    made = []
    for num_tokens, width in [(1, 576), (5, 64), (3, 7), (0, 64), (40, 2048), (2, 100)]:
        x_TD = torch.randn(num_tokens, width, generator=g).to(device)
        weight_D = torch.randn(width, generator=g).to(device)
        made.append(_case(f"{num_tokens}x{width}", x_TD, weight_D, 1e-5))
    wide = torch.randn(6, 192, generator=g).to(device)
    made.append(_case("strided rows", wide[:, 64:128], torch.ones(64, device=device), 1e-6))
    heads_THd = torch.randn(5, 3, 64, generator=g).to(device)
    made.append(_case("heads", heads_THd, torch.ones(64, device=device), 1e-6))
    made.append(
        _case("zeros", torch.zeros(2, 64, device=device), torch.ones(64, device=device), 1e-6)
    )
    made.append(
        _case("large", 1e18 * torch.ones(2, 64, device=device), torch.ones(64, device=device), 1e-6)
    )
    return made


def benches(device: str) -> list[Case]:
    g = generator(1)
    weight_D = torch.randn(576, generator=g).to(device)
    return [
        _case(f"{t}x576", torch.randn(t, 576, generator=g).to(device), weight_D, 1e-5)
        for t in (1, 8, 512)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(name: str, x_TD: torch.Tensor, weight_D: torch.Tensor, eps: float) -> Case:
    return Case(
        name=name,
        args=(x_TD, weight_D),
        kwargs={"eps": eps},
        activations=(0, 1),
        num_bytes=8 * x_TD.numel(),
        num_flops=4 * x_TD.numel(),
    )
