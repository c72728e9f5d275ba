# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.ops.linear.cases import make_weight

WEIGHTS = ("f32", "bf16", "q8_0", "q4_k")
SHAPES = ((1, 16, 256), (7, 48, 768), (16, 38, 512), (25, 40, 256), (0, 16, 256))


def cases(device: str) -> list[Case]:
    return [_case(w, shape, device, biased=shape[0] == 7) for w in WEIGHTS for shape in SHAPES]


def benches(device: str) -> list[Case]:
    return [_case("bf16", (t, 6144, 4096), device, biased=False) for t in (1, 16)]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(name: str, shape: tuple[int, int, int], device: str, *, biased: bool) -> Case:
    one = normed_case(name, shape, device, biased=biased)
    is_dense = one.kwargs["format"].is_dense
    return replace(one, rtol=1e-4 if is_dense else 2e-4, atol=1e-4 if is_dense else 5e-4)


def normed_case(name: str, shape: tuple[int, int, int], device: str, *, biased: bool) -> Case:
    """Of `shape` T, N, K: rows to norm and multiply; whoever calls sets the tolerances."""
    t, n, k = shape
    g = generator(t)
    weight, weight_format = make_weight(name, n, k, device)
    x_TK = 3 * torch.randn(t, k, generator=g)
    gain_K = 1 + 0.1 * torch.randn(k, generator=g)
    bias_N = torch.randn(n, generator=g).to(device) if biased else None
    return Case(
        name=f"{name} {t}x{n}x{k}",
        args=(x_TK.to(device), gain_K.to(device), weight, bias_N),
        kwargs={"eps": 1e-5, "format": weight_format},
        activations=(0, 1, 3),
        num_bytes=weight.numel() * weight.element_size() + 4 * t * (n + k),
        num_flops=2 * t * n * k,
    )
