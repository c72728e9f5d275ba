# SPDX-License-Identifier: Apache-2.0
"""What each rank of a mesh holds of a model: found by building it, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tokenlight.kernels import Format
from tokenlight.spmd import Layout, Mesh, build_chain, pieces, weight_layouts
from tokenlight.weights import Pieces, fill_without_numbers


@dataclass(frozen=True, slots=True)
class Sharding:
    """One rank's share."""

    mesh: Mesh
    layouts: Mapping[str, Layout]
    """Of the buffers of its model."""
    pieces: Pieces
    """Of the checkpoint's tensors, by slot."""
    shapes: nn.Module
    """Its model, without numbers."""


def find_sharding(
    build: Callable[[Mesh], nn.Module],
    mesh: Mesh,
    format_of: Callable[[str, int], Format],
    dtype: torch.dtype,
) -> Sharding:
    """Build the model once per axis of the mesh and compare.

    Args:
        build: makes the model of a mesh's rank.
        mesh: as its rank sees it.
        format_of: what the checkpoint stores a slot's part as; parts of one format are one product.
        dtype: of activations.

    Raises:
        ConfigError: something cannot be split evenly.
    """
    chain = build_chain(build, mesh)
    held = pieces(chain, mesh)
    for model in chain:
        fill_without_numbers(model, format_of, dtype)
    return Sharding(mesh, weight_layouts(chain), held, chain[-1])
