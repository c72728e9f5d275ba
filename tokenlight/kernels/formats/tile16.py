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

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.k_scales import (
    pack_scales_3,
    pack_scales_45,
    unpack_scales_3,
    unpack_scales_45,
)

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


def pack_tile16(weight: Tensor, weight_format: Format) -> Tensor:
    """From layout `rows` (uint8 [N, row_bytes]) to `tile16`, as a new tensor."""
    packed_format = TILE16[weight_format.name]
    num_rows, row_bytes = weight.shape
    num_blocks = row_bytes // weight_format.block_bytes
    blocks = _order(weight_format.name, weight.view(num_rows, num_blocks, -1))
    out = torch.empty(num_rows, num_blocks * packed_format.block_bytes, dtype=torch.uint8)
    num_tiles = num_rows // TILE_ROWS
    full = num_tiles * TILE_ROWS
    out[full:] = blocks[full:].flatten(1)
    # numpy moves whole words on one thread; torch's strided copies of bytes take several times as
    # long, and much longer where its threads must wait for cores.
    block_bytes = packed_format.block_bytes
    tiled = blocks[:full].numpy().reshape(num_tiles, TILE_ROWS, num_blocks, block_bytes)
    tiles = out[:full].numpy().reshape(num_tiles, num_blocks, TILE_ROWS * block_bytes)
    start = 0
    for section in SECTIONS[weight_format.name]:
        stop = start + section.num_bytes
        tiles[..., TILE_ROWS * start : TILE_ROWS * stop] = _rows_together(
            _elements(tiled[..., start:stop], section), section
        )
        start = stop
    return out


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


def _elements(section_bytes: NDArray[np.uint8], section: Section) -> NDArray[np.unsignedinteger]:
    """Bytes [tile, row, block, byte] as elements; a nibble in a byte of its own."""
    packed = np.ascontiguousarray(section_bytes)
    if section.bits == 4:
        return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 8)
    return packed.view(_WORDS[section.bits])


def _rows_together(elements: NDArray[np.unsignedinteger], section: Section) -> NDArray[np.uint8]:
    """[tile, row, block, element] to bytes in the order [tile, block, element, row]."""
    moved = np.ascontiguousarray(elements.transpose(0, 2, 3, 1))
    num_tiles, num_blocks = moved.shape[:2]
    if section.bits == 4:
        moved = moved[..., ::2] | (moved[..., 1::2] << 4)
    return moved.reshape(num_tiles, num_blocks, np.prod(moved.shape[2:], dtype=int)).view(np.uint8)


def _rows_apart(section_bytes: NDArray[np.uint8], section: Section) -> NDArray[np.uint8]:
    """The inverse of `_rows_together` of `_elements`."""
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


def _order(name: str, blocks: Tensor) -> Tensor:
    """A file's blocks [..., block_bytes] in the order of their sections."""
    if name == "q8_0":
        return torch.cat([blocks[..., :2], blocks[..., 2:] ^ 0x80], dim=-1)
    if name in ("q4_k", "q5_k"):
        scales = unpack_scales_45(blocks[..., 4:16])
        return torch.cat([blocks[..., :4], *scales, blocks[..., 16:]], dim=-1)
    if name == "q6_k":
        return torch.cat([blocks[..., 208:], blocks[..., 192:208], blocks[..., :192]], dim=-1)
    if name == "q3_k":
        unpacked = unpack_scales_3(blocks[..., 96:108]).view(torch.uint8)
        return torch.cat([blocks[..., 108:], unpacked, blocks[..., :96]], dim=-1)
    if name == "q2_k":
        return torch.cat([blocks[..., 80:], blocks[..., :80]], dim=-1)
    return blocks


def _restore(name: str, blocks: Tensor) -> Tensor:
    """The inverse of `_order`."""
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
