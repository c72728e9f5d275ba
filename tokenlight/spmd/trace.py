# SPDX-License-Identifier: Apache-2.0
"""A module's method as a graph: contracts are nodes, everything else but views is refused later.

The argument is opaque: a step's fields are nodes that read it, and no code may branch on it.
"""

from __future__ import annotations

import operator
import sys
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, Tracer

from tokenlight import kernels

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


class _Trace(Tracer):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.traced_func_name = method
        self._names: dict[int, str] = {}
        self._constants: dict[str, Node] = {}

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        self._names = {id(tensor): name for name, tensor in root.named_buffers()}
        return super().trace(root, concrete_args)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False

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
