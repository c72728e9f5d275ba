# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    return [
        _case(50 * torch.randn(t, n, generator=g).to(device), cap)
        for t, n, cap in [(1, 1000, 30.0), (5, 64, 50.0), (3, 7, 1.0), (0, 64, 30.0), (20, 33, 5.0)]
    ]


def benches(device: str) -> list[Case]:
    return [
        _case(30 * torch.randn(t, 262144, generator=generator(1)).to(device), 30.0) for t in (1, 8)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(x_TN: torch.Tensor, cap: float) -> Case:
    return Case(
        name=f"{x_TN.shape[0]}x{x_TN.shape[1]} cap {cap}",
        args=(x_TN,),
        kwargs={"cap": cap},
        activations=(0,),
        num_bytes=8 * x_TN.numel(),
        num_flops=4 * x_TN.numel(),
    )
