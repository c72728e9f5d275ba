# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    made = [_case(*torch.randn(2, t, d, generator=g).to(device)) for t, d in SHAPES]
    wide = torch.randn(4, 96, generator=g).to(device)
    return [*made, _case(wide[:, :32], wide[:, 64:], "strided rows ")]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [_case(*torch.randn(2, t, 576, generator=g).to(device)) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0, 1)) for rows in row_slices(case.args[0].shape[0])]


SHAPES = [(1, 576), (5, 64), (3, 7), (0, 64), (40, 100)]


def _case(x_TD: torch.Tensor, y_TD: torch.Tensor, name: str = "") -> Case:
    return Case(
        name=name + "x".join(map(str, x_TD.shape)),
        args=(x_TD, y_TD),
        rtol=0,
        atol=0,
        activations=(0, 1),
        num_bytes=12 * x_TD.numel(),
        num_flops=x_TD.numel(),
    )
