# SPDX-License-Identifier: Apache-2.0
"""Layout `tile16`: sixteen rows side by side, so that a register holds the same weights of each.

First the bits of a block are put in the order that kernels want (`_ORDERS`): scales first, 6-bit
scales as bytes, quants of `q8_0` biased by 128 because the dot product instruction takes one
unsigned factor. Then each 16 rows become a tile: block by block, section by section (`SECTIONS`),
element i of row 0, of row 1, ... of row 15, then element i + 1. An element is a float16 scale, a
byte of scales, or the four bytes of quants that one lane multiplies at a time; of fifth bits
(`q5_0`, `q5_1`) it is a nibble, so that 64 bits are a mask for a register of weights. Rows beyond
the last full tile are left as ordered blocks, row after row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.k_scales import pack_scales_3, pack_scales_45
from tokenlight.kernels.weight_memory import weight_memory

TILE_ROWS = 16


class Section(NamedTuple):
    """Some of an ordered block: `num_elements` of `bits` bits each."""

    bits: int
    num_elements: int

    @property
    def num_bytes(self) -> int:
        return self.bits * self.num_elements // 8


_HALVES, _HALF = Section(16, 2), Section(16, 1)
_NIBBLES = Section(32, 4)
SECTIONS: dict[str, tuple[Section, ...]] = {
    "q4_0": (_HALF, _NIBBLES),
    "q4_1": (_HALVES, _NIBBLES),
    "q5_0": (_HALF, Section(4, 8), _NIBBLES),
    "q5_1": (_HALVES, Section(4, 8), _NIBBLES),
    "q8_0": (_HALF, Section(32, 8)),
    "iq4_nl": (_HALF, _NIBBLES),
    "mxfp4": (Section(8, 1), _NIBBLES),
    "q2_k": (_HALVES, Section(8, 16), Section(32, 16)),
    "q3_k": (_HALF, Section(8, 16), Section(32, 8), Section(32, 16)),
    "q4_k": (_HALVES, Section(8, 16), Section(32, 32)),
    "q5_k": (_HALVES, Section(8, 16), Section(32, 8), Section(32, 32)),
    "q6_k": (_HALF, Section(8, 16), Section(32, 32), Section(32, 16)),
}

TILE16: dict[str, Format] = {
    name: Format(
        name,
        FORMATS[name].block_elements,
        sum(section.num_bytes for section in sections),
        layout="tile16",
    )
    for name, sections in SECTIONS.items()
}


def pack_tile16(
    parts: Sequence[Tensor], weight_format: Format, queue: _cpu.PackQueue | None = None
) -> Tensor:
    """From layout `rows` to `tile16`, as a new tensor.

    Args:
        parts: uint8 [..., row_bytes] each, whose rows lie under each other, from the first
            dimension to the last but one; only a row has to be contiguous.
        weight_format: what they are.
        queue: where they wait for it, kept until it is finished.
    """
    packed_format = TILE16[weight_format.name]
    row_bytes = parts[0].shape[-1]
    if any(part.shape[-1] != row_bytes or part.stride(-1) != 1 for part in parts):
        raise ValueError(
            f"want rows of {row_bytes} bytes, each contiguous, got "
            f"{[(list(part.shape), part.stride()) for part in parts]}"
        )
    num_rows = sum(part.numel() // row_bytes for part in parts)
    num_blocks = row_bytes // weight_format.block_bytes
    out = weight_memory.allocate(num_rows * num_blocks * packed_format.block_bytes)
    packing = _cpu.PackQueue() if queue is None else queue
    packing.add(
        out.data_ptr(),
        [(part.data_ptr(), part.shape[:-1], part.stride()[:-1]) for part in parts],
        num_blocks,
        _cpu.WeightFormat[weight_format.name],
        keep=(parts, out),
    )
    if queue is None:
        packing.finish()
    return out.view(num_rows, -1)


def unpack_tile16(weight: Tensor, weight_format: Format) -> Tensor:
    """The inverse of `pack_tile16`."""
    num_rows = weight.shape[0]
    num_blocks = weight.shape[1] // weight_format.block_bytes
    num_tiles = num_rows // TILE_ROWS
    full = num_tiles * TILE_ROWS
    block_bytes = weight_format.block_bytes
    blocks = torch.empty(num_rows, num_blocks, block_bytes, dtype=torch.uint8)
    blocks[full:] = weight[full:].view(num_rows - full, num_blocks, block_bytes)
    tiles = weight[:full].numpy().reshape(num_tiles, num_blocks, TILE_ROWS * block_bytes)
    tiled = blocks[:full].numpy().reshape(num_tiles, TILE_ROWS, num_blocks, block_bytes)
    start = 0
    for section in SECTIONS[weight_format.name]:
        stop = start + section.num_bytes
        apart = _rows_apart(tiles[..., TILE_ROWS * start : TILE_ROWS * stop], section)
        tiled[..., start:stop] = apart
        start = stop
    return _restore(weight_format.name, blocks).flatten(1)


_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def _rows_apart(section_bytes: NDArray[np.uint8], section: Section) -> NDArray[np.uint8]:
    """Bytes [tile, block, byte] of a section to [tile, row, block, byte]."""
    num_tiles, num_blocks, _ = section_bytes.shape
    shape = (num_tiles, num_blocks, section.num_elements, TILE_ROWS)
    packed = np.ascontiguousarray(section_bytes)
    if section.bits == 4:
        nibbles = np.stack([packed & 0xF, packed >> 4], axis=-1)
        apart = nibbles.reshape(shape).transpose(0, 3, 1, 2)
        out: NDArray[np.uint8] = apart[..., ::2] | (apart[..., 1::2] << 4)
        return out
    elements = packed.view(_WORDS[section.bits]).reshape(shape)
    return np.ascontiguousarray(elements.transpose(0, 3, 1, 2)).view(np.uint8)


def _restore(name: str, blocks: Tensor) -> Tensor:
    """Blocks in the order of their sections [..., block_bytes] as the file has them."""
    if name == "q8_0":
        return torch.cat([blocks[..., :2], blocks[..., 2:] ^ 0x80], dim=-1)
    if name in ("q4_k", "q5_k"):
        packed = pack_scales_45(blocks[..., 4:12], blocks[..., 12:20])
        return torch.cat([blocks[..., :4], packed, blocks[..., 20:]], dim=-1)
    if name == "q6_k":
        return torch.cat([blocks[..., 18:], blocks[..., 2:18], blocks[..., :2]], dim=-1)
    if name == "q3_k":
        packed = pack_scales_3(blocks[..., 2:18].view(torch.int8))
        return torch.cat([blocks[..., 18:], packed, blocks[..., :2]], dim=-1)
    if name == "q2_k":
        return torch.cat([blocks[..., 4:], blocks[..., :4]], dim=-1)
    return blocks
