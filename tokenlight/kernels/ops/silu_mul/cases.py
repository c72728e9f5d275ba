# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    shapes = [(1, 1536), (5, 64), (3, 7), (0, 64), (40, 100)]
    made = [_case(torch.randn(t, 2 * f, generator=g).to(device)) for t, f in shapes]
    steep = torch.linspace(-120, 120, 480, device=device).repeat(2).view(1, -1)
    return [*made, _case(steep)]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [_case(torch.randn(t, 3072, generator=g).to(device)) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(gate_up_T2F: torch.Tensor) -> Case:
    return Case(
        name="x".join(map(str, gate_up_T2F.shape)),
        args=(gate_up_T2F,),
        activations=(0,),
        num_bytes=6 * gate_up_T2F.numel(),
        num_flops=4 * gate_up_T2F.numel(),
    )
