# SPDX-License-Identifier: Apache-2.0
"""Numbers of four bits, eight in an int32, as checkpoints pack them, into blocks of GGUF's formats.

`q4_0` is the same number for number where 8 is subtracted from all, else `q5_0`, whose fifth bit
takes the difference. Where scales are no float16, or the columns of a group are scattered, there is
no such format: weights become dense, rounded to the type of the scales as other code does.

Shapes: N rows, K weights per row, G groups per row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.kernels.formats import FORMATS, Format

BLOCK = 32
# Unpacked at a time, so that what is between stays in a cache.
CHUNK_WORDS = 1 << 14
Words = NDArray[Any]
"""uint64."""
_DENSE_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Int4(NamedTuple):
    """A matrix: (q - zero) * scale."""

    q_NK: Tensor
    """uint8 from 0 to 15."""
    scales_NG: Tensor
    zeros_NG: Tensor
    """uint8 from 0 to 16."""


def unpack_words(words: Tensor) -> Tensor:
    """int32 [rows, columns] as uint8 [rows, 8 * columns], the lowest four bits first."""
    return _unpacked(words, _in_order)


def unpack_awq(words: Tensor) -> Tensor:
    """As `unpack_words`, of words with even columns in their low half, odd ones in their high."""
    return _unpacked(words, _in_halves)


def _unpacked(words: Tensor, spread: Callable[[Words], Words]) -> Tensor:
    packed = words.contiguous().numpy().view(np.uint32).reshape(-1)
    wide = np.empty(packed.size, np.dtype("<u8"))
    for at in range(0, packed.size, CHUNK_WORDS):
        some = slice(at, at + CHUNK_WORDS)
        wide[some] = spread(packed[some].astype(wide.dtype))
    return torch.from_numpy(wide.view(np.uint8).reshape(words.shape[0], -1))


def _in_order(wide: Words) -> Words:
    """Each nibble in a byte of its own."""
    wide = (wide | wide << 16) & 0x0000FFFF0000FFFF
    wide = (wide | wide << 8) & 0x00FF00FF00FF00FF
    apart: Words = (wide | wide << 4) & 0x0F0F0F0F0F0F0F0F
    return apart


def _in_halves(wide: Words) -> Words:
    both: Words = _four_apart(wide & 0xFFFF) | _four_apart(wide >> 16) << 8
    return both


def _four_apart(halves: Words) -> Words:
    """The four nibbles of 16 bits, each at the start of 16 bits of its own."""
    halves = (halves | halves << 24) & 0x000000FF000000FF
    apart: Words = (halves | halves << 12) & 0x000F000F000F000F
    return apart


def int4_rows(weight: Int4, groups_K: Tensor | None = None) -> tuple[Tensor, Format]:
    """Rows of blocks, uint8 [N, row_bytes], and what they are.

    Args:
        weight: whose groups are neighbouring columns, as many in each.
        groups_K: the group of each column, where a checkpoint says so.
    """
    q_NK, scales_NG, zeros_NG = weight
    n, k = q_NK.shape
    reach = k // scales_NG.shape[1]
    neighbours_K = torch.arange(k) // reach
    if groups_K is not None and not torch.equal(groups_K.long(), neighbours_K):
        return _dense(weight, groups_K.long())
    half_NG = scales_NG.half()
    if reach % BLOCK or not torch.equal(half_NG.float(), scales_NG.float()):
        return _dense(weight, neighbours_K)
    scale = _per_block(half_NG, reach).view(torch.uint8)
    q = q_NK.view(n, -1, BLOCK)
    if bool((zeros_NG == 8).all()):
        return torch.cat([scale, pack_nibbles(q)], dim=-1).flatten(1), FORMATS["q4_0"]
    raised = q + 16 - _per_block(zeros_NG, reach)
    parts = [scale, _fifth_bits(raised), pack_nibbles(raised & 0xF)]
    return torch.cat(parts, dim=-1).flatten(1), FORMATS["q5_0"]


def mxfp4_rows(pairs: Tensor, exponents: Tensor) -> Tensor:
    """Numbers [N, K / 2], of two in a byte the first low, and their exponents [N, K / 32]."""
    elements = torch.stack([pairs & 0xF, pairs >> 4], dim=-1).view(*exponents.shape, BLOCK)
    return torch.cat([exponents.unsqueeze(-1), pack_nibbles(elements)], dim=-1).flatten(1)


def pack_nibbles(elements: Tensor) -> Tensor:
    """Elements [..., 32] in 16 bytes: the first half low, the second high."""
    packed: Tensor = elements[..., : BLOCK // 2] | (elements[..., BLOCK // 2 :] << 4)
    return packed


def _per_block(values_NG: Tensor, reach: int) -> Tensor:
    return values_NG.repeat_interleave(reach // BLOCK, dim=1).unsqueeze(-1)


def _fifth_bits(elements: Tensor) -> Tensor:
    """Bit 4 of elements [..., 32] in 4 bytes, the first element lowest."""
    bits = np.packbits((elements & 0x10).numpy(), axis=-1, bitorder="little")
    return torch.from_numpy(bits)


def _dense(weight: Int4, groups_K: Tensor) -> tuple[Tensor, Format]:
    scales_NK, zeros_NK = weight.scales_NG[:, groups_K], weight.zeros_NG[:, groups_K]
    whole_NK = weight.q_NK.to(torch.int8) - zeros_NK.to(torch.int8)
    numbers = (whole_NK.to(scales_NK.dtype) * scales_NK).contiguous()
    return numbers.view(torch.uint8), FORMATS[_DENSE_NAMES[numbers.dtype]]
