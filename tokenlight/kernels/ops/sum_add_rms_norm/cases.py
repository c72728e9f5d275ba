# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    shapes = [(1, 2, 576), (5, 4, 64), (3, 3, 7), (0, 2, 64), (4, 1, 64), (40, 8, 256)]
    return [_case(t, g, d, device) for t, g, d in shapes]


def benches(device: str) -> list[Case]:
    return [_case(t, 2, 576, device) for t in (1, 8)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0, 1)) for rows in row_slices(case.args[0].shape[0])]


def _case(num_tokens: int, num_ranks: int, width: int, device: str) -> Case:
    g = generator(width)
    shares_TN = torch.randn(num_tokens, num_ranks * width, generator=g).to(device)
    residual_TD = torch.randn(num_tokens, width, generator=g).to(device)
    return Case(
        name=f"{num_tokens}x{width} of {num_ranks}",
        args=(shares_TN, residual_TD, torch.randn(width, generator=g).to(device)),
        kwargs={"eps": 1e-5},
        activations=(0, 1, 2),
        num_bytes=4 * (shares_TN.numel() + 3 * residual_TD.numel()),
        num_flops=shares_TN.numel() + 5 * residual_TD.numel(),
    )
