# SPDX-License-Identifier: Apache-2.0
"""A module's method as a graph: contracts are nodes, everything else but views is refused later.

The argument is opaque: a step's fields are nodes that read it, and no code may branch on it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, Tracer

from tokenlight import kernels
from tokenlight.spmd.placement import Placement, PlacementError, declared

# Frames of these are not the model author's.
_MACHINERY = ("torch.", "tokenlight.kernels.", "tokenlight.spmd.")

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def trace(module: nn.Module, method: str) -> Graph:
    """What `module.method(step)` does, for any step."""
    return _Trace(method).trace(module)


def line_of(node: Node) -> str:
    """Where the model's code made this node: `file.py:12`."""
    return str(node.meta.get("line", "?"))


def path_of(node: Node) -> str:
    """The module that made it: `layers.0.self_attn`; empty for the root."""
    return str(node.meta.get("path", ""))


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a module declares of one of its inputs, or of its result."""

    path: str
    line: str
    role: str
    name: str
    placement: Placement

    def is_not(self, found: str, wanted: str) -> PlacementError:
        return PlacementError(
            f"{self.path} ({self.line}): {self.name} is declared {self.placement} in {self.role}: "
            f"found {found}, wanted {wanted}"
        )


def enter(x: Tensor) -> Tensor:
    """Marks where a module takes an argument."""
    return x


def leave(x: Tensor) -> Tensor:
    """Marks where a module gives its result."""
    return x


class _Trace(Tracer):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.traced_func_name = method
        self._inside: list[Boundary] = []
        self._names: dict[int, str] = {}
        self._constants: dict[str, Node] = {}

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        self._names = {id(tensor): name for name, tensor in root.named_buffers()}
        return super().trace(root, concrete_args)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if (told := declared(m)) is None:
            return super().call_module(m, forward, args, kwargs)
        code = type(m).forward.__code__
        path, line = self.path_of_module(m), f"{code.co_filename}:{code.co_firstlineno}"

        def boundary(name: str, placement: Placement) -> Boundary:
            return Boundary(path, line, told.role, name, placement)

        args = tuple(
            self._mark(enter, arg, boundary(name, told.inputs[name]))
            if name in told.inputs
            else arg
            for name, arg in zip(code.co_varnames[1:], args, strict=False)  # after self
        )
        if told.returns is None:
            return super().call_module(m, forward, args, kwargs)
        result_is = boundary("its result", told.returns)
        self._inside.append(result_is)
        result = super().call_module(m, forward, args, kwargs)
        self._inside.pop()
        return self._mark(leave, result, result_is)

    def _mark(self, mark: Callable[[Tensor], Tensor], arg: Any, boundary: Boundary) -> Any:
        proxy = self.create_proxy("call_function", mark, (arg,), {})
        proxy.node.meta |= {"boundary": boundary, "path": boundary.path}
        return proxy

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, kernels.Format):  # a tuple to `fx`, one constant to us
            return a
        if isinstance(a, Tensor):
            return self._constant(a)
        return super().create_arg(a)

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        target, args, kwargs = _as_contract(target, args, kwargs)
        if not isinstance(target, str):
            kind = "call_function"
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        node.meta["line"] = _author_line()
        node.meta["path"] = next(reversed(self.module_stack), "")
        node.meta["inside"] = self._inside[-1] if self._inside else None
        return node

    def _constant(self, tensor: Tensor) -> Node:
        """One node per tensor, however often it is used: a tied table has two users."""
        name = self._names.get(id(tensor))
        if name is None:
            raise TypeError(
                f"a tensor of shape {list(tensor.shape)} at {_author_line()} is no buffer of the "
                f"model; register it"
            )
        if name not in self._constants:
            self._constants[name] = super().create_node("get_attr", name, (), {})
        return self._constants[name]


def _as_contract(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The contract behind what is written as plain arithmetic."""
    if target in (operator.add, operator.iadd) and isinstance(args[0], Node):
        return kernels.add, args, kwargs
    if target is operator.mul and isinstance(args[1], Real):
        return kernels.scale, args[:1], {"factor": float(args[1])}
    if target == "float":
        return kernels.to_float32, args, kwargs
    if target is torch.cat and kwargs.get("dim", args[-1]) == -1:
        return kernels.concat_columns, tuple(args[0]), {}
    return target, args, kwargs


def _author_line() -> str:
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
