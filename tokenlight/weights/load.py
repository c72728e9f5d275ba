# SPDX-License-Identifier: Apache-2.0
"""Fills a model's slots from a checkpoint: every tensor is used once, or named in an error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from torch import nn

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, TensorEntry
from tokenlight.weights.entries import HEAD, TABLE, plain_entries
from tokenlight.weights.gguf_names import ROTATED, ROTATES_NEIGHBOURS
from tokenlight.weights.mapped import MappedFiles
from tokenlight.weights.slot import HasSlots, Slot, Target
from tokenlight.weights.stored import StoredTensor

# A layer's name in checkpoints -> (its name in our models, which part of it)
WeightMap = Mapping[str, tuple[str, int]]

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor of the checkpoint, and its plain name in Hugging Face's terms."""

    name: str
    entry: TensorEntry


def load_weights(
    model: nn.Module, checkpoint: Checkpoint, weight_map: WeightMap, target: Target
) -> None:
    """Fill every slot of `model`.

    Raises:
        CheckpointCorrupt: a tensor is missing, or its shape is not what the configuration implies.
        UnsupportedCheckpoint: a tensor has no place in the model.
    """
    slots = slots_of(model)
    sources = _assign(checkpoint, weight_map, slots)
    files = MappedFiles(checkpoint.layout)
    for name, slot in slots.items():
        parts = [
            _read(files, checkpoint, sources[name, part]) for part in range(len(slot.part_shapes))
        ]
        slot.fill(parts, target)
        del parts
        for part in range(len(slot.part_shapes)):
            files.release(sources[name, part].entry)


def slots_of(model: nn.Module) -> dict[str, Slot]:
    """Every place of the model, by our name."""
    # A protocol is slow to ask, so each kind of layer is asked once.
    kinds = {kind for kind in map(type, model.modules()) if issubclass(kind, HasSlots)}
    return {
        f"{path}.{kind}": slot
        for path, layer in model.named_modules()
        if type(layer) in kinds
        for kind, slot in cast(HasSlots, layer).slots().items()
    }


def _assign(
    checkpoint: Checkpoint, weight_map: WeightMap, slots: Mapping[str, Slot]
) -> dict[tuple[str, int], _Source]:
    """Match tensors with parts of slots, one to one."""
    sources: dict[tuple[str, int], _Source] = {}
    unknown: list[str] = []
    for name, entry in _needed_entries(checkpoint, slots).items():
        place = _place(name, weight_map)
        if place[0] not in slots:
            unknown.append(entry.name)
            continue
        _check_shape(checkpoint, entry, slots[place[0]].part_shapes[place[1]])
        sources[place] = _Source(name, entry)
    if unknown:
        raise UnsupportedCheckpoint(
            f"{checkpoint.path}: tensors without a place in the model {checkpoint.model_type!r} "
            f"as this version implements it: {_listed(unknown)}"
        )
    missing = [
        _theirs(name, part, weight_map)
        for name, slot in slots.items()
        for part in range(len(slot.part_shapes))
        if (name, part) not in sources
    ]
    if missing:
        raise CheckpointCorrupt(
            f"{checkpoint.path}: missing tensors: {_listed(missing)}; download it again"
        )
    return sources


def _needed_entries(checkpoint: Checkpoint, slots: Mapping[str, Slot]) -> dict[str, TensorEntry]:
    entries = plain_entries(checkpoint)
    if HEAD not in slots and HEAD in entries:
        # A tied file has the table once or twice, under either name.
        entries.setdefault(TABLE, entries[HEAD])
        del entries[HEAD]
    return entries


def _place(name: str, weight_map: WeightMap) -> tuple[str, int]:
    """`layers.3.self_attn.k_proj.weight` -> (`layers.3.self_attn.qkv_proj.weight`, 1)."""
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    ours, part = weight_map.get(layer, (layer, 0))
    return f"{parent}.{ours}.{kind}" if parent else f"{ours}.{kind}", part


def _theirs(name: str, part: int, weight_map: WeightMap) -> str:
    """(`layers.3.self_attn.qkv_proj.weight`, 1) -> `layers.3.self_attn.k_proj.weight`."""
    path, _, kind = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    parts = {place: theirs for theirs, place in weight_map.items()}
    theirs = parts.get((layer, part), layer)
    return f"{parent}.{theirs}.{kind}" if parent else f"{theirs}.{kind}"


def _check_shape(checkpoint: Checkpoint, entry: TensorEntry, shape: tuple[int, ...]) -> None:
    if entry.shape != shape:
        raise CheckpointCorrupt(
            f"{checkpoint.path}: tensor {entry.name!r} has the shape {list(entry.shape)}, "
            f"but the model's configuration implies {list(shape)}"
        )


def _read(files: MappedFiles, checkpoint: Checkpoint, source: _Source) -> StoredTensor:
    stored = files.read(source.entry)
    if checkpoint.layout == "gguf" and checkpoint.model_type in ROTATES_NEIGHBOURS:
        layer = source.name.split(".")[-2]
        if layer in ROTATED:
            return stored.with_split_halves(checkpoint.config[ROTATED[layer]])
    return stored


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(map(repr, names[:MAX_NAMED]))}{more}"
