# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    shapes = [(1, 576), (5, 64), (3, 7), (0, 64), (40, 2048)]
    return [_case(t, d, device) for t, d in shapes]


def benches(device: str) -> list[Case]:
    return [_case(t, 576, device) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0, 1)) for rows in row_slices(case.args[0].shape[0])]


def _case(num_tokens: int, width: int, device: str) -> Case:
    g = generator(width)
    x_TD, residual_TD = torch.randn(2, num_tokens, width, generator=g).to(device)
    return Case(
        name=f"{num_tokens}x{width}",
        args=(x_TD, residual_TD, torch.randn(width, generator=g).to(device)),
        kwargs={"eps": 1e-5},
        activations=(0, 1, 2),
        num_bytes=16 * x_TD.numel(),
        num_flops=5 * x_TD.numel(),
    )
