# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight


def cases(device: str) -> list[Case]:
    made = []
    for name in WEIGHTS:
        for vocabulary, width, dtype in [(96, 256, torch.float32), (37, 512, torch.bfloat16)]:
            weight, weight_format = make_weight(name, vocabulary, width, device)
            for num_tokens in (1, 40, 0):
                ids = torch.randint(0, vocabulary, (num_tokens,), generator=generator(2))
                ids[:1] = vocabulary - 1
                made.append(
                    Case(
                        name=f"{name} {vocabulary}x{width} {num_tokens} tokens",
                        args=(ids.int().to(device), weight),
                        kwargs={"format": weight_format, "dtype": dtype},
                        rtol=0,
                        atol=0,
                    )
                )
    return made


def benches(device: str) -> list[Case]:
    name = "q8_0/tile16" if device == "cpu" else "bf16"
    weight, weight_format = make_weight(name, 49152, 576, device)
    return [
        Case(
            name=f"{name} {t} tokens",
            args=(torch.randint(0, 49152, (t,), generator=generator(3)).int().to(device), weight),
            kwargs={"format": weight_format},
            num_bytes=t * 576 * 5,
        )
        for t in (1, 8, 512)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]
