# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint's tensor goes: which slot of the model, which part of it, of which expert.

A weight map renames layers (`up_proj`), or tensors under a layer (`experts.down_proj_bias`).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

# A layer's name in checkpoints -> (its name in our models, which part of it)
WeightMap = Mapping[str, tuple[str, int]]

_EXPERT = re.compile(r"(.*\bexperts)\.(\d+)")


class Place(NamedTuple):
    slot: str
    part: int
    expert: int | None = None
    """Of a tensor that is one expert's: which row of the part's first dimension it is."""


def place_of(name: str, weight_map: WeightMap) -> Place:
    """`layers.3.self_attn.k_proj.weight` -> (`layers.3.self_attn.qkv_proj.weight`, 1)."""
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    if (tensor := f"{layer}.{kind}") in weight_map:
        ours, part = weight_map[tensor]
        return Place(_joined(parent, ours), part)
    ours, part = weight_map.get(layer, (layer, 0))
    if expert := _EXPERT.fullmatch(parent):
        return Place(_joined(expert[1], ours, kind), part, int(expert[2]))
    return Place(_joined(parent, ours, kind), part)


def stored_name(name: str, part: int, weight_map: WeightMap) -> str:
    """What checkpoints call a part of a slot; of all experts, without their numbers.

    (`layers.3.self_attn.qkv_proj.weight`, 1) -> `layers.3.self_attn.k_proj.weight`.
    """
    theirs = {place: stored for stored, place in weight_map.items()}
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    if (tensor := (f"{layer}.{kind}", part)) in theirs:
        return _joined(parent, theirs[tensor])
    return _joined(parent, theirs.get((layer, part), layer), kind)


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)
