# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from tokenlight.kernels.case import Case
from tokenlight.kernels.ops.norm_linear.cases import SHAPES, WEIGHTS, normed_case, parts

__all__ = ["benches", "cases", "parts"]


def cases(device: str) -> list[Case]:
    return [_case(w, shape, device, biased=shape[0] == 7) for w in WEIGHTS for shape in SHAPES]


def benches(device: str) -> list[Case]:
    return [_case("bf16", (t, 24576, 4096), device, biased=False) for t in (1, 16)]


def _case(name: str, shape: tuple[int, int, int], device: str, *, biased: bool) -> Case:
    # A product of two results has the error of each, times the other.
    return replace(normed_case(name, shape, device, biased=biased), rtol=1e-3, atol=2e-3)
