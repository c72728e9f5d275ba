# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.tile16 import TILE16, pack_tile16

_DENSE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
WEIGHTS: dict[str, Format] = {str(f): f for f in (*FORMATS.values(), *TILE16.values())}


def make_weight(name: str, n: int, k: int, device: str) -> tuple[Tensor, Format]:
    """A random weight of about unit rows, of the format and layout called `name`."""
    weight_format = WEIGHTS[name]
    g = generator(n * k)
    if weight_format.is_dense:
        dense = torch.randn(n, k, generator=g) / k**0.5
        return dense.to(_DENSE[weight_format.name]).to(device), weight_format
    rows_format = FORMATS[weight_format.name]
    blocks = torch.randint(0, 256, (n, k // 32, rows_format.block_bytes), generator=g).byte()
    # Steps of a sixteenth (4 bits) or a 128th (8 bits) of about one, rows of about unit length.
    step = (1 / 8 if weight_format.name != "q8_0" else 1 / 128) / k**0.5
    scale = (0.5 + torch.rand(n, k // 32, 1, generator=g)) * step
    blocks[..., :2] = scale.half().view(torch.uint8)
    if weight_format.name == "q4_1":
        blocks[..., 2:4] = (-8 * scale).half().view(torch.uint8)
    rows = blocks.view(n, -1).to(device)
    if weight_format.layout == "tile16":
        return pack_tile16(rows, rows_format), weight_format
    return rows, weight_format


def cases(device: str) -> list[Case]:
    made = []
    for name, weight_format in WEIGHTS.items():
        shapes = [(1, 16, 256), (7, 48, 576), (33, 37, 512), (2, 5, 32), (0, 16, 64), (70, 160, 96)]
        if weight_format.is_dense:
            shapes += [(9, 7, 3), (3, 20, 100)]
        for t, n, k in shapes:
            made += _shape_cases(name, t, n, k, device)
    return made


def benches(device: str) -> list[Case]:
    shapes = [(960, 576), (576, 576), (3072, 576), (576, 1536)]
    made = [
        _case(name, t, n, k, device, whole=False, biased=False)
        for name in ("q4_1/tile16", "q8_0/tile16", "f16")
        for n, k in shapes
        for t in (1, 8, 512)
    ]
    return made + [
        _case("q8_0/tile16", t, 49152, 576, device, whole=False, biased=False) for t in (1, 8)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _shape_cases(name: str, t: int, n: int, k: int, device: str) -> list[Case]:
    made = [_case(name, t, n, k, device, whole=False, biased=True)]
    if not WEIGHTS[name].is_dense:
        made.append(_case(name, t, n, k, device, whole=True, biased=False))
    return made


def _case(name: str, t: int, n: int, k: int, device: str, *, whole: bool, biased: bool) -> Case:
    """One call; `whole` activations survive rounding, so the sums must agree closely."""
    g = generator(t)
    weight, weight_format = make_weight(name, n, k, device)
    x_TK = torch.randn(t, k, generator=g)
    rounds = not weight_format.is_dense and not whole
    if whole:
        x_TK = torch.randint(-127, 128, (t, k), generator=g).float()
        x_TK[:, ::32] = 127
    return Case(
        name=f"{name} {t}x{n}x{k}" + (" whole" if whole else ""),
        args=(x_TK.to(device), weight, torch.randn(n, generator=g).to(device) if biased else None),
        kwargs={"format": weight_format},
        rtol=2e-4 if rounds else 1e-4,
        # A rounding step is amax / 16256 of its block; `whole` inputs are 70 times as large.
        atol=5e-4 if rounds else (1e-3 if whole else 1e-4),
        num_bytes=weight.numel() * weight.element_size() + 4 * t * (n + k),
        num_flops=2 * t * n * k,
    )
