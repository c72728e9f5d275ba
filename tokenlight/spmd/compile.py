# SPDX-License-Identifier: Apache-2.0
"""All passes in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Graph

from tokenlight.kernels.comm import Communicator
from tokenlight.spmd.buckets import find_buckets
from tokenlight.spmd.dispatch import dispatch
from tokenlight.spmd.fuse import fuse
from tokenlight.spmd.lower import lower
from tokenlight.spmd.mesh import Mesh
from tokenlight.spmd.place import place
from tokenlight.spmd.placement import Layout
from tokenlight.spmd.program import Program
from tokenlight.spmd.rows import Limits
from tokenlight.spmd.target import Target
from tokenlight.spmd.trace import trace


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where a rank stands among others: the mesh it sees, what it holds, how it reaches them."""

    mesh: Mesh = field(default_factory=Mesh)
    weights: Mapping[str, Layout] = field(default_factory=dict)
    communicator: Communicator | None = None


@torch.no_grad()
def placed_graph(module: nn.Module, method: str, probe: Any, ranks: Ranks) -> Graph:
    """Traced, checked, with collectives; each node has its value and its layout in `meta`."""
    graph = trace(module, method)
    place(graph, module, probe, ranks.mesh, ranks.weights)
    dispatch(graph, module, probe)
    return graph


@torch.no_grad()
def compile_method(
    module: nn.Module,
    method: str,
    probe: Any,
    *,
    device: torch.device,
    limits: Limits,
    ranks: Ranks | None = None,
) -> Program:
    """The program of `module.method(step)`, whose weights are filled, and those for fewer rows.

    Args:
        module: the model, built with the sizes of one rank.
        method: takes one argument, reads its fields, returns one tensor.
        probe: such an argument with tensors of device "meta" and `PROBE_ROWS` rows.
        device: where it will run.
        limits: the most rows that it will be run with.
        ranks: the others; None: there are none.
    """
    ranks = ranks or Ranks()
    graph = placed_graph(module, method, probe, ranks)
    target = Target(device, limits, ranks.communicator)
    program = None
    for bucket in find_buckets(graph, target):
        part, part_target = _copy(graph), target._replace(limits=bucket)
        fuse(part, part_target)
        program = lower(part, module, part_target, program)
    assert program is not None
    return program


def _copy(graph: Graph) -> Graph:
    """Other nodes that know the same."""
    made = Graph()
    made.output(made.graph_copy(graph, {}))
    return made
