# SPDX-License-Identifier: Apache-2.0
"""Which part of each weight a rank holds: nobody says it, it follows from how modules are built.

A model is built with the sizes that one rank holds. Built again on the mesh without an axis, some
tensors are larger: along those dimensions the axis splits them. What is as large without the axis
is the same on all its ranks, which is how kv heads fewer than ranks are replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from torch import nn

from tokenlight.base.errors import ConfigError
from tokenlight.spmd.mesh import Mesh
from tokenlight.spmd.placement import PARTIAL, REPLICATE, Layout, Partial, Placement, Shard
from tokenlight.weights import Piece, slots_of

Shape = tuple[int, ...]
Build = Callable[[Mesh], nn.Module]


def build_chain(build: Build, mesh: Mesh) -> list[nn.Module]:
    """The model on the mesh with none of its axes, with the outermost, with two, ... with all."""
    return [build(mesh.only(num_axes).at(mesh.rank)) for num_axes in range(len(mesh.sizes) + 1)]


def weight_layouts(chain: Sequence[nn.Module]) -> dict[str, Layout]:
    """Of every buffer of models whose slots are filled, with or without numbers."""
    shapes = [{n: tuple(b.shape) for n, b in model.named_buffers()} for model in chain]
    return {name: _layout(name, shapes) for name in shapes[-1]}


def pieces(chain: Sequence[nn.Module], mesh: Mesh) -> dict[str, tuple[Piece, ...]]:
    """What the mesh's rank holds of each part of each slot.

    Raises:
        ConfigError: a dimension is not split evenly.
    """
    shapes: list[dict[str, Shape]] = [{} for _ in chain]
    for model, found in zip(chain, shapes, strict=True):
        for name, slot in slots_of(model).items():
            found |= {f"{name}/{part}": s for part, s in enumerate(slot.part_shapes)}
    return {
        name: tuple(_piece(f"{name}/{part}", shapes, mesh) for part in range(len(slot.part_shapes)))
        for name, slot in slots_of(chain[-1]).items()
    }


def _layout(name: str, shapes: Sequence[Mapping[str, Shape]]) -> Layout:
    return tuple(_placement(name, without, with_axis) for without, with_axis in pairwise(shapes))


def _placement(
    name: str, without: Mapping[str, Shape], with_axis: Mapping[str, Shape]
) -> Placement:
    whole, part = without[name], with_axis[name]
    split = [
        dim for dim, lengths in enumerate(zip(whole, part, strict=True)) if len({*lengths}) > 1
    ]
    if len(split) > 1:
        raise ConfigError(
            f"{name}: one axis splits {list(whole)} to {list(part)}, in two dimensions"
        )
    if split:
        return Shard(split[0])
    return PARTIAL if _is_bias_of_a_sum(name, without, with_axis) else REPLICATE


def _is_bias_of_a_sum(
    name: str, without: Mapping[str, Shape], with_axis: Mapping[str, Shape]
) -> bool:
    """Whether it is added to a product whose inputs are split: then only one rank may add it."""
    layer = name.rpartition(".")[0]
    return any(
        other.rpartition(".")[0] == layer
        and shape[:-1] == with_axis[name]
        and without[other][-1] != shape[-1]
        for other, shape in with_axis.items()
    )


def _piece(name: str, shapes: Sequence[Mapping[str, Shape]], mesh: Mesh) -> Piece:
    whole = shapes[0][name]
    starts, lengths, is_held = [0] * len(whole), list(whole), True
    for axis, placement in enumerate(_layout(name, shapes)):
        index, num_ranks = mesh.coordinate(axis), mesh.sizes[axis]
        match placement:
            case Shard(dim):
                length = shapes[axis + 1][name][dim]
                num_parts = lengths[dim] // length
                if num_parts * length != lengths[dim] or num_ranks % num_parts:
                    raise ConfigError(
                        f"{name}: {lengths[dim]} cannot be split over {num_ranks} ranks"
                    )
                # Fewer parts than ranks: neighbours have the same one.
                starts[dim] += index * num_parts // num_ranks * length
                lengths[dim] = length
            case Partial():
                is_held = is_held and index == 0
    return Piece(whole, tuple(starts), tuple(lengths), is_held)
