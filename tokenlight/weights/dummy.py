# SPDX-License-Identifier: Apache-2.0
"""Random weights of no file: N(0, 0.02), the same numbers on every device.

A number depends on its tensor's name, its row and its column alone, so a rank that holds a part of
a tensor can make that part. Integers are mixed and a table gives the normal distribution: nothing
is rounded differently anywhere.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace

import torch
from torch import Tensor, nn

from tokenlight.kernels import FORMATS
from tokenlight.weights.load import Pieces, slots_of
from tokenlight.weights.piece import Piece
from tokenlight.weights.places import WeightMap, stored_name
from tokenlight.weights.slot import Target
from tokenlight.weights.stored import StoredTensor

_STD = 0.02
_LEVELS_BITS = 16
_GOLDEN = 0x9E3779B9
# Rows are made in pieces: the integers of a piece take four times its weights' memory.
_PIECE_ELEMENTS = 1 << 26


def fill_with_dummies(
    model: nn.Module, weight_map: WeightMap, target: Target, pieces: Pieces | None = None
) -> None:
    """Fill every slot of `model`, made where it will be read; of `pieces`, what this rank holds."""
    for name, slot in slots_of(model).items():
        held = pieces[name] if pieces else [Piece.all_of(shape) for shape in slot.part_shapes]
        names = (stored_name(name, part, weight_map) for part in range(len(held)))
        wholes = (
            dummy_tensor(stored, piece.whole, target.device)
            for stored, piece in zip(names, held, strict=True)
        )
        slot.fill([_cut(whole, piece) for whole, piece in zip(wholes, held, strict=True)], target)


def _cut(whole: StoredTensor, piece: Piece) -> StoredTensor:
    """Rows one after the other, in memory of their own: a slot may keep them as they are."""
    part = piece.of(whole)
    if part is whole:
        return whole
    return replace(part, rows=part.rows.clone(memory_format=torch.contiguous_format))


def dummy_tensor(name: str, shape: tuple[int, ...], device: torch.device) -> StoredTensor:
    """A tensor as if a bfloat16 checkpoint had it. Vectors (gains, biases) are around 1.

    Args:
        name: as checkpoints call it, without the model's prefix.
        shape: whose last dimension is the columns.
        device: where its memory is.
    """
    num_columns = shape[-1]
    num_rows = 1
    for length in shape[:-1]:
        num_rows *= length
    numbers = torch.empty(num_rows, num_columns, dtype=torch.bfloat16, device=device)
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    step = max(1, _PIECE_ELEMENTS // num_columns)
    table = _quantiles().to(device)
    for start in range(0, num_rows, step):
        rows = numbers[start : start + step]
        places = _mixed(seed, start, rows.shape[0], num_columns, device)
        torch.index_select(table, 0, places.view(-1), out=rows.view(-1))
    if len(shape) == 1:
        numbers += 1
    return StoredTensor(
        name=name,
        shape=shape,
        format=FORMATS["bf16"],
        layout="huggingface",
        rows=numbers.view(torch.uint8).view(shape[0] if len(shape) > 1 else 1, -1),
    )


@functools.cache
def _quantiles() -> Tensor:
    """The middle of each of 65,536 equally likely parts of the normal distribution, bfloat16."""
    levels = torch.arange(1 << _LEVELS_BITS, dtype=torch.float64) + 0.5
    quantiles: Tensor = torch.special.ndtri(levels / (1 << _LEVELS_BITS))
    return (quantiles * _STD).to(torch.bfloat16)


def _mixed(
    seed: int, first_row: int, num_rows: int, num_columns: int, device: torch.device
) -> Tensor:
    """A 16-bit number per element, int32 [rows, columns]: the seed keys rows, a row its columns."""
    row_numbers = torch.arange(first_row, first_row + num_rows, dtype=torch.int64, device=device)
    keys = _mix_(_wrap((row_numbers * _GOLDEN + seed) & 0xFFFFFFFF))
    columns = torch.arange(num_columns, dtype=torch.int64, device=device)
    strides = _wrap(columns * _GOLDEN & 0xFFFFFFFF)
    mixed = _mix_(keys[:, None] + strides)
    return mixed.bitwise_and_((1 << _LEVELS_BITS) - 1)


def _wrap(unsigned: Tensor) -> Tensor:
    """The int32 with the same low 32 bits."""
    return torch.where(unsigned >= 1 << 31, unsigned - (1 << 32), unsigned).to(torch.int32)


def _mix_(x: Tensor) -> Tensor:
    """In place, each bit of an int32 depends on all of it: xor-shifts and odd factors, mod 2^32.

    The constants are those of Chris Wellons' lowbias32: https://nullprogram.com/blog/2018/07/31/
    """
    # `>>` keeps the sign: the mask takes it away.
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(0x7FEB352D)
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(0x846CA68B - (1 << 32))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))
