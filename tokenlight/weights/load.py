# SPDX-License-Identifier: Apache-2.0
"""Fills a model's slots from a checkpoint: every tensor is used once, or named in an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import nn

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, TensorEntry
from tokenlight.kernels import Format
from tokenlight.weights.entries import HEAD, TABLE, plain_entries
from tokenlight.weights.filling import Filling
from tokenlight.weights.gguf_names import ROTATED, ROTATES_NEIGHBOURS
from tokenlight.weights.mapped import MappedFiles, format_of
from tokenlight.weights.piece import Piece
from tokenlight.weights.places import WeightMap, place_of, stored_name
from tokenlight.weights.slot import HasSlots, Slot, Target
from tokenlight.weights.stacked import stack
from tokenlight.weights.stored import StoredTensor
from tokenlight.weights.upload import read_ahead

# By our name of a slot: the pieces of its parts; their shapes.
Pieces = Mapping[str, Sequence[Piece]]
PartShapes = tuple[tuple[int, ...], ...]

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Source:
    """What a part of a slot is read from."""

    name: str
    """Plain, in Hugging Face's terms."""
    entries: tuple[TensorEntry, ...]
    """One tensor; or one of each expert, in order."""
    is_stack: bool = False


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    weight_map: WeightMap,
    target: Target,
    pieces: Pieces | None = None,
) -> None:
    """Fill every slot of `model`.

    Args:
        model: built with the sizes that this rank holds.
        checkpoint: an opened one.
        weight_map: the model's own.
        target: where it will run.
        pieces: what this rank holds of each slot's parts; None: all of it.

    Raises:
        CheckpointCorrupt: a tensor is missing, or its shape is not what the configuration implies.
        UnsupportedCheckpoint: a tensor has no place in the model.
    """
    slots = slots_of(model)
    shapes = {name: slot.part_shapes for name, slot in slots.items()}
    if pieces is not None:
        shapes = {name: tuple(piece.whole for piece in pieces[name]) for name in slots}
    sources = _assign(checkpoint, weight_map, shapes)
    files = MappedFiles(checkpoint.layout)

    def read(name: str) -> list[StoredTensor]:
        num_parts = len(slots[name].part_shapes)
        parts = [_read(files, checkpoint, sources[name, part]) for part in range(num_parts)]
        if pieces is None:
            return parts
        return [piece.of(part) for piece, part in zip(pieces[name], parts, strict=True)]

    arriving = read_ahead([partial(read, name) for name in slots], target.device)
    with Filling(files, target) as filling:
        for name, slot in slots.items():
            num_parts = len(slot.part_shapes)
            entries = [each for part in range(num_parts) for each in sources[name, part].entries]
            filling.fill(slot, next(arriving), entries)


def stored_formats(
    model: nn.Module, checkpoint: Checkpoint, weight_map: WeightMap
) -> dict[tuple[str, int], Format]:
    """How the checkpoint stores each part of each slot of a whole model; raises as loading does."""
    shapes = {name: slot.part_shapes for name, slot in slots_of(model).items()}
    sources = _assign(checkpoint, weight_map, shapes)
    return {place: format_of(source.entries[0]) for place, source in sources.items()}


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
    checkpoint: Checkpoint, weight_map: WeightMap, shapes: Mapping[str, PartShapes]
) -> dict[tuple[str, int], _Source]:
    """Match tensors with parts of slots, one to one."""
    found: dict[tuple[str, int], dict[int | None, _Source]] = {}
    unknown: list[str] = []
    for name, entry in _needed_entries(checkpoint, shapes).items():
        place = place_of(name, weight_map)
        if place.slot not in shapes:
            unknown.append(entry.name)
            continue
        shape = shapes[place.slot][place.part]
        _check_shape(checkpoint, entry, shape if place.expert is None else shape[1:])
        found.setdefault((place.slot, place.part), {})[place.expert] = _Source(name, (entry,))
    if unknown:
        raise UnsupportedCheckpoint(
            f"{checkpoint.path}: tensors without a place in the model {checkpoint.model_type!r} "
            f"as this version implements it: {_listed(unknown)}"
        )
    missing = [
        stored_name(name, part, weight_map)
        for name, parts in shapes.items()
        for part, shape in enumerate(parts)
        if not _is_whole(found.get((name, part), {}), shape)
    ]
    if missing:
        raise CheckpointCorrupt(
            f"{checkpoint.path}: missing tensors: {_listed(missing)}; download it again"
        )
    return {place: _joined(by_expert) for place, by_expert in found.items()}


def _is_whole(by_expert: Mapping[int | None, _Source], shape: tuple[int, ...]) -> bool:
    return by_expert.keys() == {None} or by_expert.keys() == {*range(shape[0])}


def _joined(by_expert: Mapping[int | None, _Source]) -> _Source:
    if None in by_expert:
        return by_expert[None]
    in_order = [by_expert[expert] for expert in range(len(by_expert))]
    entries = tuple(source.entries[0] for source in in_order)
    return _Source(in_order[0].name, entries, is_stack=True)


def _needed_entries(
    checkpoint: Checkpoint, shapes: Mapping[str, PartShapes]
) -> dict[str, TensorEntry]:
    entries = plain_entries(checkpoint)
    if HEAD not in shapes and HEAD in entries:
        # A tied file has the table once or twice, under either name.
        entries.setdefault(TABLE, entries[HEAD])
        del entries[HEAD]
    return entries


def _check_shape(checkpoint: Checkpoint, entry: TensorEntry, shape: tuple[int, ...]) -> None:
    if entry.shape != shape:
        raise CheckpointCorrupt(
            f"{checkpoint.path}: tensor {entry.name!r} has the shape {list(entry.shape)}, "
            f"but the model's configuration implies {list(shape)}"
        )


def _read(files: MappedFiles, checkpoint: Checkpoint, source: _Source) -> StoredTensor:
    if source.is_stack:
        return stack([files.read(entry) for entry in source.entries])
    stored = files.read(source.entries[0])
    if checkpoint.layout == "gguf" and checkpoint.model_type in ROTATES_NEIGHBOURS:
        layer = source.name.split(".")[-2]
        if layer in ROTATED:
            return stored.with_split_halves(checkpoint.config[ROTATED[layer]])
    return stored


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(map(repr, names[:MAX_NAMED]))}{more}"
