# SPDX-License-Identifier: Apache-2.0
"""Weights of any format as float32, in torch: the truth that kernels are held to.

Bit-exact with the `gguf` package.

Shapes: N rows, K weights per row, n blocks per row.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.tile16 import unpack_tile16


def dequantize(weight: Tensor, weight_format: Format) -> Tensor:
    """Weights as float32 [N, K].

    Args:
        weight: dense [N, K], or uint8 [N, row_bytes] in any layout.
        weight_format: what `weight` is.
    """
    if weight_format.is_dense:
        return weight.float()
    if weight_format.layout == "tile16":
        rows = unpack_tile16(weight, weight_format)
        return dequantize(rows, FORMATS[weight_format.name])
    blocks = weight.reshape(weight.shape[0], -1, weight_format.block_bytes)
    return _BLOCKS[weight_format.name](blocks).reshape(weight.shape[0], -1)


def _halves(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block, as float32 [N, n, 1]."""
    return blocks[..., start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """Low nibbles, then high nibbles, as float32."""
    return torch.cat([packed & 0xF, packed >> 4], dim=-1).float()


def _q4_0(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * (_nibbles(blocks[..., 2:]) - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * _nibbles(blocks[..., 4:]) + _halves(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * blocks[..., 2:].contiguous().view(torch.int8).float()


_BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {"q4_0": _q4_0, "q4_1": _q4_1, "q8_0": _q8_0}
