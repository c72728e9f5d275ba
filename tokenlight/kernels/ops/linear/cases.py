# SPDX-License-Identifier: Apache-2.0
from typing import NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.case import Case, Part, generator, row_slices, rows_part
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.scaled import FP8, block_scaled, parse_scaled
from tokenlight.kernels.formats.tile16 import TILE16, pack_tile16

_DENSE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
WEIGHTS: dict[str, Format] = {str(f): f for f in (*FORMATS.values(), *FP8, *TILE16.values())}


def make_weight(name: str, n: int, k: int, device: str) -> tuple[Tensor, Format]:
    """A random weight of about unit rows, of the format and layout called `name`."""
    weight_format = WEIGHTS[name]
    g = generator(n * k)
    if weight_format.is_dense:
        dense = torch.randn(n, k, generator=g) / k**0.5
        return dense.to(_DENSE[weight_format.name]).to(device), weight_format
    if weight_format in FP8:
        return _make_fp8(weight_format, n, k, device), weight_format
    rows_format = FORMATS[weight_format.name]
    num_blocks = k // rows_format.block_elements
    blocks = torch.randint(0, 256, (n, num_blocks, rows_format.block_bytes), generator=g).byte()
    scale = (0.5 + torch.rand(n, num_blocks, 1, generator=g)) / k**0.5
    if weight_format.name == "mxfp4":
        exponents = (scale / _SCALES["mxfp4"].largest).log2().round() + 128
        blocks[..., :1] = exponents.byte()
    else:
        place = _SCALES[weight_format.name]
        step = scale / place.largest
        _put_half(blocks, place.step, step)
        if place.minimum is not None:
            _put_half(blocks, place.minimum, -scale if rows_format.block_elements == 32 else step)
    rows = blocks.view(n, -1).to(device)
    if weight_format.layout == "tile16":
        return pack_tile16([rows], rows_format), weight_format
    return rows, weight_format


def _make_fp8(weight_format: Format, n: int, k: int, device: str) -> Tensor:
    """All numbers that there are, subnormals and zeros of both signs too, but NaN."""
    g = generator(n * k)
    numbers = torch.randint(0, 127, (n, k), generator=g) + 128 * torch.randint(
        0, 2, (n, k), generator=g
    )
    group = weight_format.block_elements
    scales = (0.5 + torch.rand(n, k // group, generator=g)) / (128 * k**0.5)
    weight = numbers.byte().view(torch.float8_e4m3fn)
    return block_scaled(weight, scales, parse_scaled(f"fp8_e4m3:group{group}"))[0].to(device)


class _Scales(NamedTuple):
    """Where a block keeps its float16 scales, and the largest number that the step multiplies."""

    step: int
    largest: int
    minimum: int | None = None


_SCALES = {
    "q4_0": _Scales(0, 8),
    "q4_1": _Scales(0, 8, 2),
    "q5_0": _Scales(0, 16),
    "q5_1": _Scales(0, 16, 2),
    "q8_0": _Scales(0, 128),
    "iq4_nl": _Scales(0, 128),
    "mxfp4": _Scales(0, 12),
    "q2_k": _Scales(80, 3 * 15, 82),
    "q3_k": _Scales(108, 4 * 32),
    "q4_k": _Scales(0, 15 * 63, 2),
    "q5_k": _Scales(0, 31 * 63, 2),
    "q6_k": _Scales(208, 32 * 128),
}


def _put_half(blocks: Tensor, start: int, values: Tensor) -> None:
    blocks[..., start : start + 2] = values.half().view(torch.uint8)


def cases(device: str) -> list[Case]:
    made = []
    for name, weight_format in WEIGHTS.items():
        shapes = [(1, 16, 256), (7, 48, 768), (33, 37, 512), (0, 16, 256)]
        if weight_format.block_elements <= 32:
            shapes += [(2, 5, 32), (70, 160, 96), (12, 16, 576)]
        if weight_format.is_dense:
            shapes += [(9, 7, 3), (3, 20, 100)]
        for t, n, k in shapes:
            made += _shape_cases(name, t, n, k, device)
    return made


def benches(device: str) -> list[Case]:
    if device != "cpu":  # the matrices of an 8B model
        shapes = [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)]
        return [
            _case("bf16", t, n, k, device, whole=False, biased=False)
            for n, k in shapes
            for t in (1, 16, 64, 2048)
        ]
    shapes = [(960, 576), (576, 576), (3072, 576), (576, 1536)]
    made = [
        _case(name, t, n, k, device, whole=False, biased=False)
        for name in ("q4_1/tile16", "q8_0/tile16", "f16")
        for n, k in shapes
        for t in (1, 8, 512)
    ]
    # Larger than the caches, as the weights of a whole model are.
    made += [
        _case(str(f), t, n, k, device, whole=False, biased=False)
        for f in (*TILE16.values(), FP8[0])
        for n, k, t in ((32768, 1024, 1), (4096, 1024, 8), (4096, 1024, 128))
    ]
    return made + [
        _case("q8_0/tile16", t, 49152, 576, device, whole=False, biased=False) for t in (1, 8)
    ]


def parts(case: Case) -> list[Part]:
    return [rows_part(case, rows, row_args=(0,)) for rows in row_slices(case.args[0].shape[0])]


def _shape_cases(name: str, t: int, n: int, k: int, device: str) -> list[Case]:
    made = [_case(name, t, n, k, device, whole=False, biased=True)]
    if _rounds(WEIGHTS[name]):
        made.append(_case(name, t, n, k, device, whole=True, biased=False))
    return made


def _rounds(weight_format: Format) -> bool:
    """Whether activations are rounded for it."""
    return not weight_format.is_dense and weight_format not in FP8


def _case(name: str, t: int, n: int, k: int, device: str, *, whole: bool, biased: bool) -> Case:
    """One call; `whole` activations survive rounding, so the sums must agree closely."""
    g = generator(t)
    weight, weight_format = make_weight(name, n, k, device)
    x_TK = torch.randn(t, k, generator=g)
    rounds = _rounds(weight_format) and not whole
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
        activations=(0, 2),
        num_bytes=weight.numel() * weight.element_size() + 4 * t * (n + k),
        num_flops=2 * t * n * k,
    )
