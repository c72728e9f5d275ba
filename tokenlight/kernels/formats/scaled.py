# SPDX-License-Identifier: Apache-2.0
"""Weights that come with scales in a tensor of their own: FP8 and INT4, as checkpoints have them.

How many weights share a scale is part of the type: "fp8" alone says too little to read one. At
load each becomes rows of blocks as all other formats are: `g` weights and what they are multiplied
by, so that one tensor and one `Format` name them and a kernel reads them from one place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.formats import Format

# Of blocks in memory: weights per block, the first that divides a row and no scale's reach cuts.
GROUPS = (128, 64, 32)


class Scales(NamedTuple):
    """How many rows and columns of a weight share one scale; 0 for all of them."""

    rows: int
    columns: int

    def shape(self, n: int, k: int) -> tuple[int, int]:
        """Of the tensor of scales of an [n, k] weight."""
        return (-(-n // (self.rows or n)), -(-k // (self.columns or k)))

    def __str__(self) -> str:
        if self.rows == 1 and self.columns:
            return f"group{self.columns}"
        names = {(0, 0): "tensor", (1, 0): "channel"}
        return names.get(self, f"{self.rows}x{self.columns}")


PER_TENSOR, PER_CHANNEL, BLOCK_128 = Scales(0, 0), Scales(1, 0), Scales(128, 128)


class ScaledFormat(NamedTuple):
    """A checkpoint's weight type: its numbers, and the layout of their scales."""

    numbers: str
    """fp8_e4m3 or int4."""
    scales: Scales

    def __str__(self) -> str:
        return f"{self.numbers}:{self.scales}"


def parse_scaled(text: str) -> ScaledFormat:
    """A type by its name, such as fp8_e4m3:128x128, fp8_e4m3:channel or int4:group128.

    Raises:
        ValueError: it is unknown, or ambiguous for want of its scales.
    """
    numbers, _, scales = text.partition(":")
    numbers = {"fp8": "fp8_e4m3"}.get(numbers, numbers)
    if numbers not in ("fp8_e4m3", "int4"):
        raise ValueError(f"no weights of type {text!r}; there are fp8_e4m3 and int4, with scales")
    known = {"tensor": PER_TENSOR, "channel": PER_CHANNEL, "128x128": BLOCK_128}
    if scales in known and (numbers == "fp8_e4m3" or scales == "channel"):
        return ScaledFormat(numbers, known[scales])
    if scales.startswith("group") and scales[5:].isdigit() and int(scales[5:]) % 32 == 0:
        return ScaledFormat(numbers, Scales(1, int(scales[5:])))
    choice = "channel, group32, group64, group128"
    if numbers == "fp8_e4m3":
        choice = f"tensor, 128x128, {choice}"
    asked = f"has unknown scales {scales!r}" if scales else "is ambiguous without its scales"
    raise ValueError(f"{text!r} {asked}; say {numbers}: and one of {choice}")


SCALED: dict[str, Format] = {
    **{f"fp8_e4m3_{g}": Format(f"fp8_e4m3_{g}", g, 4 + g) for g in GROUPS},
    **{f"int4_{g}": Format(f"int4_{g}", g, 8 + g // 2) for g in GROUPS},
}
FP8 = tuple(f for name, f in SCALED.items() if name.startswith("fp8_e4m3"))


def block_scaled(
    weight: Tensor, scales: Tensor, scaled: ScaledFormat, zeros: Tensor | None = None
) -> tuple[Tensor, Format]:
    """A weight and its scales as rows of blocks.

    Args:
        weight: [n, k]: float8_e4m3fn, or whole numbers from 0 to 15, one a byte, for int4.
        scales: what a weight is multiplied by; its shape is `scaled.scales.shape(n, k)`, or any of
            as many elements.
        scaled: what they are.
        zeros: int4 alone: what is subtracted from a weight first; like `scales`. None for 8.

    Returns:
        uint8 [n, row_bytes], and what it is: per block a float32 scale (of int4 also the float32
        that is added), then the weights, of int4 the first half in low nibbles.

    Raises:
        ValueError: the shapes or types do not fit.
    """
    n, k = weight.shape
    shape = scaled.scales.shape(n, k)
    wanted = torch.float8_e4m3fn if scaled.numbers == "fp8_e4m3" else torch.uint8
    if scales.numel() != shape[0] * shape[1] or weight.dtype is not wanted:
        raise ValueError(
            f"a {scaled} weight of {[n, k]} is of {wanted} and has scales of {list(shape)}, "
            f"got {weight.dtype} and {list(scales.shape)}"
        )
    group = group_of(scaled.scales, k)
    spread = _per_block(scales, scaled.scales, n, k, group)
    weights = weight.view(torch.uint8).view(n, k // group, group)
    if scaled.numbers == "fp8_e4m3":
        parts = [spread.view(torch.uint8), weights]
    else:
        offset = 8.0 if zeros is None else _per_block(zeros, scaled.scales, n, k, group)
        added = (-offset * spread).contiguous()
        low, high = weights.split(group // 2, dim=-1)
        parts = [spread.view(torch.uint8), added.view(torch.uint8), low | (high << 4)]
    name = f"{scaled.numbers}_{group}"
    return torch.cat(parts, dim=-1).flatten(1), SCALED[name]


def group_of(scales: Scales, k: int) -> int:
    """Weights per block in memory, of rows of `k`.

    Raises:
        ValueError: no block divides them.
    """
    found = next((g for g in GROUPS if k % g == 0 and scales.columns % g == 0), None)
    if found is None:
        raise ValueError(f"a row of {k} weights is no whole number of blocks of 32")
    return found


def _per_block(values: Tensor, scales: Scales, n: int, k: int, group: int) -> Tensor:
    """Scales as float32 [n, blocks, 1]."""
    rows, columns = scales.shape(n, k)
    spread = values.float().view(rows, columns)
    spread = spread.repeat_interleave(scales.rows or n, dim=0)[:n]
    spread = spread.repeat_interleave((scales.columns or k) // group, dim=1)[:, : k // group]
    return spread.unsqueeze(-1).contiguous()


def numbers_of(blocks: Tensor, name: str) -> Tensor:
    """Blocks [N, n, block_bytes] of a format of `SCALED` as float32 [N, n, block_elements]."""
    scales = blocks[..., :4].contiguous().view(torch.float32)
    if name.startswith("fp8_e4m3"):
        return blocks[..., 4:].contiguous().view(torch.float8_e4m3fn).float() * scales
    added = blocks[..., 4:8].contiguous().view(torch.float32)
    packed = blocks[..., 8:]
    return torch.cat([packed & 0xF, packed >> 4], dim=-1).float() * scales + added
