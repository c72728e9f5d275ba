# SPDX-License-Identifier: Apache-2.0
"""The 6-bit scales of GGUF's K formats: 12 bytes hold 16 numbers, in two different orders."""

import torch
from torch import Tensor


def unpack_scales_45(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minimums of `q4_k` and `q5_k`: bytes [..., 12] to two uint8 [..., 8].

    The first four of each have six bits in a byte of their own; of the last four, the low nibbles
    share a byte and the high bits are the top two of the first four's bytes.
    """
    first, second, shared = packed.split(4, dim=-1)
    scales = torch.cat([first & 0x3F, (shared & 0xF) | (first >> 6 << 4)], dim=-1)
    minimums = torch.cat([second & 0x3F, (shared >> 4) | (second >> 6 << 4)], dim=-1)
    return scales, minimums


def pack_scales_45(scales: Tensor, minimums: Tensor) -> Tensor:
    """The inverse of `unpack_scales_45`."""
    first = scales[..., :4] | (scales[..., 4:] >> 4 << 6)
    second = minimums[..., :4] | (minimums[..., 4:] >> 4 << 6)
    shared = (scales[..., 4:] & 0xF) | ((minimums[..., 4:] & 0xF) << 4)
    return torch.cat([first, second, shared], dim=-1)


def unpack_scales_3(packed: Tensor) -> Tensor:
    """Scales of `q3_k`: bytes [..., 12] to int8 [..., 16], from -32 to 31.

    Low nibbles are in the first 8 bytes (all the low halves, then the high ones); bits 4 and 5 of
    scale i are in byte 8 + i % 4, at bit 2 * (i // 4).
    """
    low = torch.cat([packed[..., :8] & 0xF, packed[..., :8] >> 4], dim=-1)
    shifts = torch.arange(0, 8, 2, device=packed.device, dtype=torch.uint8)
    high = ((packed[..., None, 8:] >> shifts[:, None]) & 3).flatten(-2)
    return (low | (high << 4)).view(torch.int8) - 32


def pack_scales_3(scales: Tensor) -> Tensor:
    """The inverse of `unpack_scales_3`."""
    unsigned = (scales + 32).view(torch.uint8)
    low = (unsigned[..., :8] & 0xF) | ((unsigned[..., 8:] & 0xF) << 4)
    first, second, third, fourth = (unsigned >> 4).split(4, dim=-1)
    high = first | second << 2 | third << 4 | fourth << 6
    return torch.cat([low, high], dim=-1)
