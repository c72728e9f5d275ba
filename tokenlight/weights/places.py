# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint's tensor goes: which slot of the model, and which part of it.

A weight map renames layers (`up_proj`), or whole tensors under a layer (`experts.down_proj_bias`).
What each expert has of its own (`experts.3.up_proj.weight`) are parts of one slot of `experts`,
expert by expert.
"""

import re
from collections.abc import Mapping

# A layer's name in checkpoints -> (its name in our models, which part of it)
WeightMap = Mapping[str, tuple[str, int]]

_EXPERT = re.compile(r"(.*\bexperts)\.(\d+)")


def place_of(name: str, weight_map: WeightMap) -> tuple[str, int]:
    """`layers.3.self_attn.k_proj.weight` -> (`layers.3.self_attn.qkv_proj.weight`, 1)."""
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    if (tensor := f"{layer}.{kind}") in weight_map:
        ours, part = weight_map[tensor]
        return _joined(parent, ours), part
    ours, part = weight_map.get(layer, (layer, 0))
    if expert := _EXPERT.fullmatch(parent):
        parent, number = expert.groups()
        part += int(number) * _num_parts(ours, weight_map)
    return _joined(parent, ours, kind), part


def stored_name(name: str, part: int, weight_map: WeightMap) -> str:
    """What checkpoints call a part of a slot.

    (`layers.3.self_attn.qkv_proj.weight`, 1) -> `layers.3.self_attn.k_proj.weight`.
    """
    theirs = {place: stored for stored, place in weight_map.items()}
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    if (tensor := (f"{layer}.{kind}", part)) in theirs:
        return _joined(parent, theirs[tensor])
    if parent.endswith(".experts"):
        expert, part = divmod(part, _num_parts(layer, weight_map))
        parent = f"{parent}.{expert}"
    return _joined(parent, theirs.get((layer, part), layer), kind)


def _num_parts(ours: str, weight_map: WeightMap) -> int:
    return max(1, sum(place[0] == ours for place in weight_map.values()))


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)
