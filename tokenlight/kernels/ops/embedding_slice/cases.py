# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight


def cases(device: str) -> list[Case]:
    """Ids before, in and after the part."""
    made = []
    for name in WEIGHTS:
        weight, weight_format = make_weight(name, 37, 256, device)
        for num_tokens, first_row in [(40, 30), (1, 0), (0, 5)]:
            ids_T = torch.randint(0, 100, (num_tokens,), generator=generator(2)).int()
            made.append(
                Case(
                    name=f"{name} from {first_row}, {num_tokens} tokens",
                    args=(ids_T.to(device), weight),
                    kwargs={"format": weight_format, "first_row": first_row},
                    rtol=0,
                    atol=0,
                )
            )
    return made


def benches(device: str) -> list[Case]:
    name = "q8_0/tile16" if device == "cpu" else "bf16"
    weight, weight_format = make_weight(name, 24576, 576, device)
    return [
        Case(
            name=f"{name} {t} tokens",
            args=(torch.randint(0, 49152, (t,), generator=generator(3)).int().to(device), weight),
            kwargs={"format": weight_format, "first_row": 24576},
            num_bytes=t * 576 * 5,
        )
        for t in (1, 8, 512)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]
