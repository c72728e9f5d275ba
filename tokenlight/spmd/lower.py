# SPDX-License-Identifier: Apache-2.0
"""From an inferred graph to a program: each call bound to an implementation, each result placed."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tokenlight import kernels
from tokenlight.kernels.contract import Implementation, Op
from tokenlight.spmd.memory import Span, plan_memory
from tokenlight.spmd.program import (
    Buffer,
    Constant,
    Instruction,
    KvField,
    Operand,
    Program,
    StepField,
    View,
)
from tokenlight.spmd.rows import Limits, rows_of
from tokenlight.spmd.target import Target
from tokenlight.spmd.trace import line_of, path_of


def lower(graph: Graph, module: nn.Module, target: Target, few: Program | None = None) -> Program:
    """Bind and place everything.

    Args:
        graph: inferred, and fused for the target.
        module: whose weights its nodes name.
        target: with the most rows that the program is run with.
        few: the program of the same method for fewer rows, if there is one.

    Raises:
        LookupError: an op has no implementation for what it is given.
        TypeError: something computes outside a contract.
    """
    lowering = _Lowering(module, target)
    for node in graph.nodes:
        lowering.visit(node)
    return lowering.program(few)


class _Call(NamedTuple):
    node: Node
    op: Op[..., Any]
    implementation: Implementation[..., Any]
    outputs: tuple[int, ...]


class _Lowering:
    def __init__(self, module: nn.Module, target: Target) -> None:
        self._module = module
        self._target = target
        self._operands: dict[Node, Any] = {}
        self._calls: list[_Call] = []
        self._values: list[Tensor] = []
        self._result: View | None = None

    def visit(self, node: Node) -> None:
        match node.op:
            case "get_attr":
                self._operands[node] = Constant(self._module.get_buffer(str(node.target)))
            case "output":
                self._result = self._operands[_node(node.args[0])]
            case "call_function" if isinstance(node.target, Op):
                self._operands[node] = self._call(node, node.target)
            case "call_function" if node.target is getattr:
                self._operands[node] = StepField(str(node.args[1]))
            case "call_method" if node.target == "layer":
                layer = int(str(node.args[1]))
                caches = node.meta["value"]
                self._operands[node] = tuple(KvField(layer, part) for part in range(len(caches)))
            case "call_function" if node.target is operator.getitem:
                self._operands[node] = self._pick(node)
            case "call_method":
                self._operands[node] = self._view(node)
            case "call_function":
                raise _computes(node)

    def _call(self, node: Node, op: Op[..., Any]) -> Any:
        value = node.meta["value"]
        source = _node(node.args[0])
        if op is kernels.to_float32 and source.meta["value"].dtype is torch.float32:
            return self._operands[source]
        made: Iterable[Tensor] = () if value is None else value if _is_tuple(value) else (value,)
        outputs = tuple(self._buffer(each) for each in made)
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
        self._calls.append(_Call(node, op, self._target.bind(op, args, kwargs), outputs))
        views = tuple(_whole(buffer, self._values[buffer]) for buffer in outputs)
        return views if _is_tuple(value) else views[0] if views else None

    def _buffer(self, value: Tensor) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _pick(self, node: Node) -> Any:
        picked = self._operands[_node(node.args[0])]
        return picked[node.args[1]] if _is_tuple(picked) else self._view(node)

    def _view(self, node: Node) -> Any:
        """A method that only looks differently at what its operand is."""
        base = self._operands[_node(node.args[0])]
        views = base if _is_tuple(base) else (base,)
        if not isinstance(views[0], View):
            raise TypeError(f"{line_of(node)}: a view of what the step brings is not supported")
        owner = self._values[views[0].buffer]
        value = node.meta["value"]
        many = value if _is_tuple(value) else (value,)
        if any(_storage(each) != _storage(owner) for each in many):
            raise _computes(node)
        seen = tuple(_view_of(views[0].buffer, each) for each in many)
        return seen if _is_tuple(value) else seen[0]

    def program(self, few: Program | None) -> Program:
        assert self._result is not None
        operands = [
            tuple(self._operands[a] if isinstance(a, Node) else None for a in call.node.args)
            for call in self._calls
        ]
        spans = self._spans(operands)
        arena = plan_memory(spans)
        buffers = tuple(
            Buffer(rows_of(value), tuple(value.shape[1:]), value.dtype, offset)
            for value, offset in zip(self._values, arena.offsets, strict=True)
        )
        ends = defaultdict[int, list[int]](list)
        for buffer, span in enumerate(spans):
            ends[span.last].append(buffer)
        instructions = tuple(
            Instruction(
                op=call.op,
                implementation=call.implementation,
                operands=args,
                options=call.node.kwargs,
                outputs=call.outputs,
                label=path_of(call.node),
                ends=tuple(ends[place]),
            )
            for place, (call, args) in enumerate(zip(self._calls, operands, strict=True))
        )
        return Program(
            instructions, buffers, self._result, self._target.limits, arena.num_bytes, few
        )

    def _spans(self, operands: list[tuple[Operand, ...]]) -> list[Span]:
        """From the call that makes a buffer to the last that reads it; the result stays."""
        assert self._result is not None
        made = {b: place for place, call in enumerate(self._calls) for b in call.outputs}
        last = dict(made)
        for place, args in enumerate(operands):
            last |= {arg.buffer: place for arg in args if isinstance(arg, View)}
        last[self._result.buffer] = len(self._calls)
        return [
            Span(_num_bytes(value, self._target.limits), made[b], last[b])
            for b, value in enumerate(self._values)
        ]


def _computes(node: Node) -> TypeError:
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return TypeError(f"{line_of(node)}: {name} computes; call a contract of `kernels` instead")


def _num_bytes(value: Tensor, limits: Limits) -> int:
    return rows_of(value).most(limits) * value[0].numel() * value.element_size()


def _whole(buffer: int, value: Tensor) -> View:
    return View(buffer, 0, tuple(value.shape[1:]), value.stride(), is_whole=True)


def _view_of(buffer: int, value: Tensor) -> View:
    offset = int(value.storage_offset())
    return View(buffer, offset, tuple(value.shape[1:]), value.stride(), is_whole=False)


def _storage(value: Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _is_tuple(value: Any) -> bool:
    return isinstance(value, tuple)


def _node(arg: Any) -> Node:
    assert isinstance(arg, Node)
    return arg
