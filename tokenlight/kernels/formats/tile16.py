# SPDX-License-Identifier: Apache-2.0
"""Layout `tile16`: sixteen rows side by side, so that a register holds the same weights of each.

A tile is 16 rows; its bytes are those of its blocks in order. A tile's block holds the 16 rows'
scales (float16, each kind of scale together), then vectors of 64 bytes: 4 consecutive bytes of row
0, of row 1, ... of row 15. Quants of `q8_0` are stored biased by 128, because the dot product
instruction takes one unsigned factor. Rows beyond the last full tile keep the layout `rows`. No
byte is added: a packed tensor has the shape and size of the file's.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.kernels.formats import FORMATS, Format

TILE_ROWS = 16

_NUM_SCALES = {"q4_0": 1, "q4_1": 2, "q8_0": 1}
_BIAS = {"q8_0": 0x80}

TILE16: dict[str, Format] = {name: FORMATS[name]._replace(layout="tile16") for name in _NUM_SCALES}


def pack_tile16(weight: Tensor, weight_format: Format) -> Tensor:
    """From layout `rows` (uint8 [N, row_bytes]) to `tile16`, as a new tensor."""
    num_rows, row_bytes = weight.shape
    num_tiles = num_rows // TILE_ROWS
    full = num_tiles * TILE_ROWS
    out = torch.empty_like(weight)
    out[full:] = weight[full:]
    scale_bytes = 2 * _NUM_SCALES[weight_format.name]
    num_blocks = row_bytes // weight_format.block_bytes
    # numpy moves whole words on one thread; torch's strided copies of bytes take several times as
    # long, and much longer where its threads must wait for cores.
    block_bytes = weight_format.block_bytes
    blocks = weight[:full].numpy().reshape(num_tiles, TILE_ROWS, num_blocks, block_bytes)
    tiles = out[:full].numpy().reshape(num_tiles, num_blocks, TILE_ROWS * block_bytes)
    scales = np.ascontiguousarray(blocks[..., :scale_bytes]).view(np.uint16)
    quants = np.ascontiguousarray(blocks[..., scale_bytes:]).view(np.uint32)
    quants ^= np.uint32(_BIAS.get(weight_format.name, 0) * 0x01010101)
    split = TILE_ROWS * scale_bytes
    tiles[..., :split] = _rows_together(scales)
    tiles[..., split:] = _rows_together(quants)
    return out


def _rows_together(words: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    """Bytes of [tile, row, block, word] in the order [tile, block, word, row]."""
    moved = np.ascontiguousarray(words.transpose(0, 2, 3, 1))
    num_tiles, num_blocks, num_words, num_rows = moved.shape
    return moved.view(np.uint8).reshape(
        num_tiles, num_blocks, num_words * num_rows * moved.itemsize
    )


def unpack_tile16(weight: Tensor, weight_format: Format) -> Tensor:
    """The inverse of `pack_tile16`."""
    num_rows, row_bytes = weight.shape
    full = num_rows // TILE_ROWS * TILE_ROWS
    out = torch.empty_like(weight)
    out[full:] = weight[full:]
    scale_bytes = 2 * _NUM_SCALES[weight_format.name]
    num_blocks = row_bytes // weight_format.block_bytes
    tiles = weight[:full].view(-1, num_blocks, TILE_ROWS * weight_format.block_bytes)
    blocks = out[:full].view(-1, TILE_ROWS, num_blocks, weight_format.block_bytes)
    split = TILE_ROWS * scale_bytes
    scales = tiles[..., :split].unflatten(-1, (-1, TILE_ROWS, 2))
    quants = (tiles[..., split:] ^ _BIAS.get(weight_format.name, 0)).unflatten(
        -1, (-1, TILE_ROWS, 4)
    )
    blocks[..., :scale_bytes] = scales.permute(0, 3, 1, 2, 4).flatten(3)
    blocks[..., scale_bytes:] = quants.permute(0, 3, 1, 2, 4).flatten(3)
    return out
