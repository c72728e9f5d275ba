# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    shapes = [(1, 576, 24.0), (5, 64, 0.1), (3, 7, 2304**0.5), (0, 64, 2.0), (40, 100, -3.0)]
    return [_case(torch.randn(t, d, generator=g).to(device), factor) for t, d, factor in shapes]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [_case(torch.randn(t, 2304, generator=g).to(device), 48.0) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(x_TD: torch.Tensor, factor: float) -> Case:
    return Case(
        name=f"{'x'.join(map(str, x_TD.shape))} by {factor:g}",
        args=(x_TD,),
        kwargs={"factor": factor},
        rtol=0,
        atol=0,
        activations=(0,),
        num_bytes=8 * x_TD.numel(),
        num_flops=x_TD.numel(),
    )
