# SPDX-License-Identifier: Apache-2.0
"""Tensors out of checkpoints, into the slots that layers name."""

from tokenlight.weights.entries import is_tied
from tokenlight.weights.load import WeightMap, load_weights
from tokenlight.weights.pack import pack_rows
from tokenlight.weights.slot import HasSlots, Slot, Target
from tokenlight.weights.stacked import pack_stacked
from tokenlight.weights.stored import StoredTensor

__all__ = [
    "HasSlots",
    "Slot",
    "StoredTensor",
    "Target",
    "WeightMap",
    "is_tied",
    "load_weights",
    "pack_rows",
    "pack_stacked",
]
