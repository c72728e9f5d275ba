# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    g = generator(0)
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    shapes = [(1, 300), (5, 64), (0, 64), (40, 7)]
    rows = [torch.randn(t, n, generator=g).to(device) for t, n in shapes]
    return [_case(x_TN.to(dtype)) for dtype in dtypes for x_TN in rows]


def benches(device: str) -> list[Case]:
    g = generator(1)
    return [_case(torch.randn(t, 151936, generator=g).bfloat16().to(device)) for t in (1, 8)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(x_TN: torch.Tensor) -> Case:
    return Case(
        name=f"{str(x_TN.dtype).removeprefix('torch.')} {'x'.join(map(str, x_TN.shape))}",
        args=(x_TN,),
        rtol=0,
        atol=0,
        activations=(0,),
        num_bytes=x_TN.numel() * (4 + x_TN.element_size()),
    )
