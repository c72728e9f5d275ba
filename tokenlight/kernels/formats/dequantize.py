# SPDX-License-Identifier: Apache-2.0
"""Weights of any format as float32, in torch: the truth that kernels are held to.

Bit-exact with the `gguf` package, so each formula rounds where that one does.

Shapes: N rows, K weights per row, n blocks per row; a formula maps bytes [N, n, block_bytes] to
weights [N, n, block_elements].
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.k_scales import unpack_scales_3, unpack_scales_45
from tokenlight.kernels.formats.scaled import SCALED, numbers_of
from tokenlight.kernels.formats.tile16 import unpack_tile16

IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Twice the values of E2M1; the scale is halved.
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


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
    if weight_format.name in SCALED:
        return numbers_of(blocks, weight_format.name).flatten(1)
    return _BLOCKS[weight_format.name](blocks).reshape(weight.shape[0], -1)


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block, as float32 [N, n, 1]."""
    return blocks[..., start : start + 2].contiguous().view(torch.float16).float()


def _fields(packed: Tensor, bits: int, run: int) -> Tensor:
    """Fields of `bits` bits: of each `run` bytes all the lowest fields first, then the next."""
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
    runs: Tensor = packed.unflatten(-1, (-1, 1, run))
    fields: Tensor = (runs >> shifts[:, None]) & (2**bits - 1)
    return fields.flatten(-3)


def _high_bits(blocks: Tensor, start: int) -> Tensor:
    """Bit i of the 4 bytes at `start` for element i."""
    shifts = torch.arange(8, device=blocks.device, dtype=torch.uint8)
    return ((blocks[..., start : start + 4, None] >> shifts) & 1).flatten(-2)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_fields(blocks[..., 2:], 4, 16).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _fields(blocks[..., 4:], 4, 16).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    q = _fields(blocks[..., 6:], 4, 16) | (_high_bits(blocks, 2) << 4)
    return _half(blocks, 0) * (q.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    q = _fields(blocks[..., 8:], 4, 16) | (_high_bits(blocks, 4) << 4)
    return _half(blocks, 0) * q.float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[..., 2:].contiguous().view(torch.int8).float()


def _iq4_nl(blocks: Tensor) -> Tensor:
    values = torch.tensor(IQ4_NL_VALUES, dtype=torch.float32, device=blocks.device)
    return _half(blocks, 0) * values[_fields(blocks[..., 2:], 4, 16).long()]


def _mxfp4(blocks: Tensor) -> Tensor:
    values = torch.tensor(MXFP4_VALUES, dtype=torch.float32, device=blocks.device)
    exponent = blocks[..., :1].int()
    # 2^(e - 128): a subnormal for e of 0 and 1.
    bits = torch.where(exponent < 2, 0x00200000 << exponent.clamp(max=1), (exponent - 1) << 23)
    return bits.view(torch.float32) * values[_fields(blocks[..., 1:], 4, 16).long()]


def _scaled(scales: Tensor, q: Tensor) -> Tensor:
    """Each scale times its run of weights; both float32."""
    runs: Tensor = q.unflatten(-1, (scales.shape[-1], -1))
    return (scales.unsqueeze(-1) * runs).flatten(-2)


def _spread(minimums: Tensor, num_weights: int) -> Tensor:
    return minimums.repeat_interleave(num_weights // minimums.shape[-1], dim=-1)


def _q2_k(blocks: Tensor) -> Tensor:
    steps = _half(blocks, 80) * (blocks[..., :16] & 0xF).float()
    minimums = _half(blocks, 82) * (blocks[..., :16] >> 4).float()
    q = _fields(blocks[..., 16:80], 2, 32).float()
    return _scaled(steps, q) - _spread(minimums, 256)


def _q3_k(blocks: Tensor) -> Tensor:
    steps = _half(blocks, 108) * unpack_scales_3(blocks[..., 96:108]).float()
    q = _fields(blocks[..., 32:96], 2, 32) | (_fields(blocks[..., :32], 1, 32) << 2)
    return _scaled(steps, q.float() - 4)


def _q4_k(blocks: Tensor) -> Tensor:
    scales, minimums = unpack_scales_45(blocks[..., 4:16])
    q = _fields(blocks[..., 16:], 4, 32).float()
    return _scaled(_half(blocks, 0) * scales.float(), q) - _spread(
        _half(blocks, 2) * minimums.float(), 256
    )


def _q5_k(blocks: Tensor) -> Tensor:
    scales, minimums = unpack_scales_45(blocks[..., 4:16])
    q = _fields(blocks[..., 48:], 4, 32) | (_fields(blocks[..., 16:48], 1, 32) << 4)
    return _scaled(_half(blocks, 0) * scales.float(), q.float()) - _spread(
        _half(blocks, 2) * minimums.float(), 256
    )


def _q6_k(blocks: Tensor) -> Tensor:
    steps = _half(blocks, 208) * blocks[..., 192:208].contiguous().view(torch.int8).float()
    q = _fields(blocks[..., :128], 4, 64) | (_fields(blocks[..., 128:192], 2, 32) << 4)
    return _scaled(steps, q.float() - 32)


_BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "iq4_nl": _iq4_nl,
    "mxfp4": _mxfp4,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
}
