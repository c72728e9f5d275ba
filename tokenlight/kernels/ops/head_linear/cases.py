# SPDX-License-Identifier: Apache-2.0
import torch

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.formats.tile16 import pack_tile16
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight


def cases(device: str) -> list[Case]:
    made = []
    for name, weight_format in WEIGHTS.items():
        made.append(_case(name, 9, 3, 16, max(32, weight_format.block_elements), device))
    made += [
        _case("bf16", 70, 4, 48, 24, device),
        _case("f32", 1, 16, 40, 12, device),
        _case("q8_0/tile16", 130, 2, 24, 64, device),
        _case("f16", 0, 2, 16, 16, device),
    ]
    return made


def benches(device: str) -> list[Case]:
    """The two of DeepSeek-V2-Lite: into the latent space, and out of it."""
    return [
        _case("bf16", t, 16, n, k, device) for t in (1, 8, 512) for n, k in ((512, 128), (128, 512))
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _case(name: str, t: int, h: int, n: int, k: int, device: str) -> Case:
    weight_format = WEIGHTS[name]
    rows, rows_format = make_weight(weight_format.name, h * n, k, device)
    weight = rows.view(h, n, -1)
    if weight_format.layout == "tile16":
        weight = torch.stack([pack_tile16([head], rows_format) for head in weight])
    fused = torch.randn(t, h * k + 8, generator=generator(t))  # tokens are strided
    return Case(
        name=f"{name} {t}x{h}x{n}x{k}",
        args=(fused[:, : h * k].view(t, h, k).to(device), weight),
        kwargs={"format": weight_format},
        rtol=2e-4,
        atol=5e-4,
        activations=(0,),
        num_bytes=weight.numel() * weight.element_size() + 4 * t * h * (n + k),
        num_flops=2 * t * h * n * k,
    )
