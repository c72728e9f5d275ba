# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    shapes = [(1, (576, 192)), (5, (64, 16, 16)), (0, (8, 8)), (9, (7,)), (40, (3, 100, 1))]
    return [_case(t, widths, device) for t, widths in shapes]


def benches(device: str) -> list[Case]:
    return [_case(t, (768, 192), device) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    every = tuple(range(len(case.args)))
    return [rows_part(case, rows, row_args=every) for rows in row_slices(case.args[0].shape[0])]


def _case(num_tokens: int, widths: tuple[int, ...], device: str) -> Case:
    g = generator(num_tokens)
    return Case(
        name=f"{num_tokens} rows of {'+'.join(map(str, widths))}",
        args=tuple(torch.randn(num_tokens, width, generator=g).to(device) for width in widths),
        rtol=0,
        atol=0,
        activations=tuple(range(len(widths))),
        num_bytes=8 * num_tokens * sum(widths),
    )
