# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight


def cases(device: str) -> list[Case]:
    made = []
    for name in WEIGHTS:
        for t, f, k in [(1, 16, 256), (7, 24, 768), (33, 37, 512), (0, 16, 256)]:
            made.append(_case(name, t, f, k, device, biased=t == 7))
    return made


def benches(device: str) -> list[Case]:
    if device != "cpu":  # of an 8B model
        return [_case("bf16", t, 12288, 4096, device, biased=False) for t in (1, 16, 2048)]
    return [
        _case(name, t, 1536, 576, device, biased=False)
        for name in ("q4_1/tile16", "q8_0/tile16")
        for t in (1, 8, 512)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(name: str, t: int, f: int, k: int, device: str, *, biased: bool) -> Case:
    g = generator(t)
    weight, weight_format = make_weight(name, 2 * f, k, device)
    bias_N = torch.randn(2 * f, generator=g).to(device) if biased else None
    rounds = not weight_format.is_dense
    return Case(
        name=f"{name} {t}x{f}x{k}",
        args=(torch.randn(t, k, generator=g).to(device), weight, bias_N),
        kwargs={"format": weight_format},
        # As for `linear`; a product of two results has the error of each, times the other.
        rtol=1e-3 if rounds else 2e-4,
        atol=2e-3 if rounds else 4e-4,
        activations=(0, 2),
        num_bytes=weight.numel() * weight.element_size() + 4 * t * (f + k),
        num_flops=4 * t * f * k,
    )
