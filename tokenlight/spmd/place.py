# SPDX-License-Identifier: Apache-2.0
"""Follows placements through a graph, holds modules to what they declare, inserts collectives.

Between modules a collective is inserted where what is there is not what is wanted, as late as
possible: two partial sums that are added are summed over the ranks once. Inside a module that
declares its boundary nothing is inserted: there its code must do what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tokenlight.kernels.contract import Op
from tokenlight.spmd.choose import Operands, choose
from tokenlight.spmd.infer import infer_node
from tokenlight.spmd.mesh import Mesh
from tokenlight.spmd.moves import cost_bytes, find_moves
from tokenlight.spmd.placement import (
    PARTIAL,
    REPLICATE,
    Layout,
    PlacementError,
    Shard,
    shown,
)
from tokenlight.spmd.rules import RULES, Row
from tokenlight.spmd.trace import Boundary, enter, leave, line_of


def place(
    graph: Graph, module: nn.Module, probe: Any, mesh: Mesh, weights: Mapping[str, Layout]
) -> None:
    """Infer shapes and layouts, insert collectives, drop the marks of boundaries.

    Args:
        graph: of `module`, just traced.
        module: built with the sizes of one rank, its slots filled with numbers or without.
        probe: what the graph's argument looks like.
        mesh: of the ranks, seen by this one.
        weights: layouts by the name of the buffer; others are replicated.

    Raises:
        PlacementError: a module's declaration is false, or a contract has no rule.
    """
    placing = _Placing(graph, module, probe, mesh, weights)
    for node in list(graph.nodes):
        placing.visit(node)
    for node in list(graph.nodes):
        if node.target in (enter, leave):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


class _Placing:
    def __init__(
        self,
        graph: Graph,
        module: nn.Module,
        probe: Any,
        mesh: Mesh,
        weights: Mapping[str, Layout],
    ) -> None:
        self._graph = graph
        self._module = module
        self._probe = probe
        self._mesh = mesh
        self._weights = weights
        axes = range(len(mesh.sizes))
        self._replicated: Layout = tuple(REPLICATE for _ in axes)
        self._by_tokens: Layout = tuple(
            Shard(0) if axis in mesh.roles["dp"] else REPLICATE for axis in axes
        )
        # What has been summed over ranks once is read from there ever after.
        self._summed: dict[Node, Node] = {}
        self._moved: dict[tuple[Node, Layout], Node] = {}
        self._choices: dict[Any, Operands | None] = {}

    def visit(self, node: Node) -> None:
        node.args = map_arg(node.args, lambda arg: self._summed.get(arg, arg))
        layout = self._layout(node)
        node.meta["value"] = infer_node(node, self._module, self._probe)
        node.meta["layout"] = layout

    def _layout(self, node: Node) -> Layout:
        if node.op == "get_attr":
            return self._weights.get(str(node.target), self._replicated)
        if node.target is getattr or node.op == "placeholder":
            return self._by_tokens
        if node.op == "output":
            return self._result(node)
        if node.target is enter:
            return self._enter(node, node.meta["boundary"])
        if node.target is leave:
            return self._leave(node, node.meta["boundary"])
        if isinstance(node.target, Op):
            return self._call(node, node.target)
        return _layout_of(node.args[0])

    def _result(self, node: Node) -> Layout:
        """Every rank gives the whole result of its tokens."""
        moved = self._move(node.args[0], self._by_tokens, node)
        if moved is None:
            found = shown(_layout_of(node.args[0]))
            raise PlacementError(f"the result is {found}, wanted {shown(self._by_tokens)}")
        node.args = (moved,)
        return self._by_tokens

    def _enter(self, node: Node, boundary: Boundary) -> Layout:
        """Bring an argument to what the module wants in its group; elsewhere to whole tokens."""
        here = _layout_of(node.args[0])
        whole = tuple(
            p if p in (REPLICATE, Shard(0)) else tokens
            for p, tokens in zip(here, self._by_tokens, strict=True)
        )
        there = self._declared(whole, boundary)
        moved = self._move(node.args[0], there, node)
        if moved is None:
            raise boundary.is_not(shown(here), shown(there))
        node.args = (moved,)
        return there

    def _leave(self, node: Node, boundary: Boundary) -> Layout:
        found = _layout_of(node.args[0])
        wanted = self._declared(found, boundary)
        if found != wanted:
            raise boundary.is_not(shown(found), shown(wanted))
        return found

    def _declared(self, layout: Layout, boundary: Boundary) -> Layout:
        axes = self._mesh.roles[boundary.role]
        return tuple(boundary.placement if a in axes else p for a, p in enumerate(layout))

    def _call(self, node: Node, op: Op[..., Any]) -> Layout:
        args = node.args
        here = tuple(_layout_of(arg) if isinstance(arg, Node) else None for arg in args)
        num_dims = len(_value_of(args[0]).shape)
        rows = self._rows_that_fit(op, here, num_dims)
        if rows is None:
            if (boundary := node.meta.get("inside")) is not None:
                raise PlacementError(
                    f"{boundary.path} ({line_of(node)}): {op.name} cannot take "
                    f"{_shown(here)}; what the module declares its inputs to be is false"
                )
            there = self._choose(node, op, here)
            if there is None:
                raise PlacementError(f"{line_of(node)}: {op.name} cannot take {_shown(here)}")
            node.args = tuple(
                arg if layout is None else self._move(arg, layout, node)
                for arg, layout in zip(args, there, strict=True)
            )
            rows = self._rows_that_fit(op, there, num_dims)
        if op.mutates:
            self._moved.clear()
        assert rows is not None
        return tuple(row.result for row in rows)

    def _rows_that_fit(
        self, op: Op[..., Any], operands: Operands, num_dims: int
    ) -> Sequence[Row] | None:
        """One row of the op's rules per axis."""
        found = []
        for axis in range(len(self._mesh.sizes)):
            if op not in RULES:
                raise PlacementError(f"{op.name} has no row in spmd/rules.py")
            here = [None if layout is None else layout[axis] for layout in operands]
            row = next((row for row in RULES[op] if row.fits(here, num_dims)), None)
            if row is None:
                return None
            found.append(row)
        return found

    def _choose(self, node: Node, op: Op[..., Any], here: Operands) -> Operands | None:
        """Layers ask the same again and again."""
        values = tuple(_value_of(a) if isinstance(a, Node) else None for a in node.args)
        is_fixed = tuple(isinstance(a, Node) and a.op == "get_attr" for a in node.args)
        key = (op, here, is_fixed, tuple(None if v is None else tuple(v.shape) for v in values))
        if key not in self._choices:
            self._choices[key] = choose(op, here, values, is_fixed, self._mesh, self._by_tokens)
        return self._choices[key]

    def _move(self, arg: Any, there: Layout, before: Node) -> Any:
        """The node that has `arg` in another layout; None where there is no way."""
        here = _layout_of(arg)
        if here == there:
            return arg
        if (arg, there) in self._moved:
            return self._moved[arg, there]
        moves, value = find_moves(here, there), arg.meta["value"]
        if moves is None or cost_bytes(value, moves, self._mesh) is None:
            return None
        moved, layout = arg, here
        with self._graph.inserting_before(before):
            for move in moves:
                moved = self._graph.call_function(move.op, (moved,), move.options(self._mesh))
                moved.meta |= {"line": before.meta.get("line"), "path": arg.meta.get("path")}
                moved.meta["value"] = infer_node(moved, self._module, self._probe)
                layout = move.applied_to(layout)
                moved.meta["layout"] = layout
        self._moved[arg, there] = moved
        if PARTIAL in here and PARTIAL not in there:
            self._summed[arg] = moved
        return moved


def _layout_of(node: Any) -> Layout:
    layout: Layout = node.meta["layout"]
    return layout


def _value_of(node: Any) -> Tensor:
    value: Tensor = node.meta["value"]
    return value


def _shown(operands: Operands) -> str:
    return ", ".join(shown(layout) for layout in operands if layout is not None)
