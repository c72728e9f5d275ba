# SPDX-License-Identifier: Apache-2.0
"""What a placed graph does, told without running it: calls, collectives, bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from torch import Tensor, nn
from torch.fx import Graph, Node

from tokenlight.kernels.comm import COLLECTIVES, Group, gather_routed, keep_part, scatter_routed
from tokenlight.kernels.contract import Op
from tokenlight.spmd.dispatch import routed_bytes
from tokenlight.spmd.moves import sent_bytes
from tokenlight.spmd.placement import REPLICATE, Layout, shown
from tokenlight.spmd.rows import PROBE_ROWS, rows_of
from tokenlight.spmd.trace import path_of


@dataclass(frozen=True, slots=True)
class Call:
    """One contract of one module; of a collective, between whom and how much."""

    op: str
    at: str
    """The module, without its layer's name."""
    layout: str
    """Of the result, per axis of the mesh."""
    group: Group = ()
    row: str = "T"
    """What `sent_bytes` is per: a token (T) or a sampled row (S) of the rank."""
    sent_bytes: float = 0.0
    """What the rank sends."""

    @property
    def is_collective(self) -> bool:
        return bool(self.group)


@dataclass(frozen=True, slots=True)
class Layer:
    """A run of calls; neighbours that do the same are one entry."""

    names: tuple[str, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """What a rank holds of a buffer."""

    name: str
    num_bytes: int
    layout: str
    is_replicated: bool
    """The same on every rank."""


def read_layers(graph: Graph) -> list[Layer]:
    """The calls of a placed graph by the layer they are in, equal neighbours as one."""
    nodes = [n for n in graph.nodes if isinstance(n.target, Op)]
    layers = [
        (name, tuple(_call(node, name) for node in part))
        for name, part in groupby(nodes, key=lambda node: _layer_of(path_of(node)))
    ]
    return [
        Layer(tuple(name for name, _ in same), calls)
        for calls, same in groupby(layers, key=lambda layer: layer[1])
    ]


def read_weights(shapes: nn.Module, layouts: dict[str, Layout]) -> list[Weight]:
    """Of a rank's model without numbers."""
    return [
        Weight(
            name,
            buffer.nbytes,
            shown(layouts[name]),
            all(placement == REPLICATE for placement in layouts[name]),
        )
        for name, buffer in shapes.named_buffers()
    ]


def sent_per_row(layers: Iterable[Layer], row: str) -> float:
    """Bytes that a rank sends for a token (T), or for a sampled row (S)."""
    return sum(
        call.sent_bytes * len(layer.names)
        for layer in layers
        for call in layer.calls
        if call.row == row
    )


def _call(node: Node, layer: str) -> Call:
    op = node.target
    assert isinstance(op, Op)
    at = path_of(node).removeprefix(layer).removeprefix(".")
    layout = shown(node.meta["layout"]) if node.meta.get("layout") else ""
    if op not in COLLECTIVES or op is keep_part:
        return Call(op.name, at, layout)
    operand: Tensor = _operand(node)
    group = node.kwargs["group"]
    assert isinstance(group, tuple)
    rows = rows_of(operand)
    row_bytes = operand.nbytes / PROBE_ROWS[rows.of]
    ranks = tuple(int(str(rank)) for rank in group)
    if op in (gather_routed, scatter_routed):
        sent = routed_bytes(op, operand, _operand(node, 1), len(ranks)) / PROBE_ROWS[rows.of]
    else:
        sent = sent_bytes(op, row_bytes, len(ranks))
    return Call(op.name, at, layout, ranks, rows.of, sent)


def _operand(node: Node, index: int = 0) -> Tensor:
    source = node.args[index]
    assert isinstance(source, Node)
    value: Tensor = source.meta["value"]
    return value


def _layer_of(path: str) -> str:
    """`layers.3.mlp.down_proj` -> `layers.3`; what is in no list by its first name."""
    first, _, rest = path.partition(".")
    number = rest.partition(".")[0]
    return f"{first}.{number}" if number.isdecimal() else first or "model"
