# SPDX-License-Identifier: Apache-2.0
"""Tensors out of checkpoints, into the slots that layers name."""

from tokenlight.weights.dummy import fill_with_dummies
from tokenlight.weights.entries import is_tied
from tokenlight.weights.load import Pieces, load_weights, slots_of, stored_formats
from tokenlight.weights.pack import pack_rows
from tokenlight.weights.piece import Piece
from tokenlight.weights.places import WeightMap
from tokenlight.weights.shapes import fill_without_numbers
from tokenlight.weights.slot import HasSlots, Slot, Target
from tokenlight.weights.stacked import as_dense_like, dequantized_rows, pack_stacked
from tokenlight.weights.stored import StoredTensor

__all__ = [
    "HasSlots",
    "Piece",
    "Pieces",
    "Slot",
    "StoredTensor",
    "Target",
    "WeightMap",
    "as_dense_like",
    "dequantized_rows",
    "fill_with_dummies",
    "fill_without_numbers",
    "is_tied",
    "load_weights",
    "pack_rows",
    "pack_stacked",
    "slots_of",
    "stored_formats",
]
