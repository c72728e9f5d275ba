# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    shapes = [(1, 1, 576), (7, 3, 64), (9, 0, 64), (40, 60, 7)]
    made = [_case(torch.randn(t, d, generator=g).to(device), s) for t, s, d in shapes]
    return [*made, _case(torch.randn(6, 96, generator=g).to(device)[:, 32:64], 4, "strided rows ")]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [_case(torch.randn(t, 576, generator=g).to(device), s) for t, s in ((8, 8), (512, 1))]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(1,)) for rows in row_slices(case.args[1].shape[0])]


def _case(x_TD: torch.Tensor, num_rows: int, name: str = "") -> Case:
    num_tokens, width = x_TD.shape
    rows_S = torch.randint(0, num_tokens, (num_rows,), generator=generator(2)).int()
    return Case(
        name=f"{name}{num_rows} of {num_tokens}x{width}",
        args=(x_TD, rows_S.to(x_TD.device)),
        rtol=0,
        atol=0,
        activations=(0,),
        num_bytes=num_rows * (8 * width + 4),
    )
