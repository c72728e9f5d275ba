# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part


def cases(device: str) -> list[Case]:
    shapes = [(1, 64, 1.0), (7, 128, 1.0), (40, 16, 1.3), (0, 64, 1.0), (5, 20, 0.7)]
    return [_case(t, r, magnitude, device) for t, r, magnitude in shapes]


def benches(device: str) -> list[Case]:
    return [_case(t, 64, 1.0, device) for t in (1, 8, 512)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(num_tokens: int, rotated: int, magnitude: float, device: str) -> Case:
    positions_T = torch.randint(0, 1 << 17, (num_tokens,), generator=generator(3)).int()
    positions_T[:1] = 131071
    exponents = torch.arange(0, rotated, 2).float() / rotated
    return Case(
        name=f"{num_tokens} tokens, {rotated} dims, magnitude {magnitude}",
        args=(positions_T.to(device), (10000.0**-exponents).to(device)),
        kwargs={"magnitude": magnitude},
        # At 131071 radians the neighbours of a float32 angle are 0.0078 apart: products must agree.
        rtol=1e-5,
        atol=2e-6,
        num_bytes=4 * num_tokens * (rotated + 1),
        num_flops=num_tokens * rotated,
    )
