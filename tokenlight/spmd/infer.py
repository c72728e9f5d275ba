# SPDX-License-Identifier: Apache-2.0
"""Shapes and dtypes of every node, without numbers, by running it on device "meta".

Row counts differ from step to step, so the probe has row counts that nothing else has: a first
dimension is T tokens, S sampled rows, or a multiple of one. All other dimensions are fixed.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_arg

from tokenlight.kernels.contract import Op
from tokenlight.spmd.trace import line_of

PROBE_ROWS = {"T": 1009, "S": 1013}


class Rows(NamedTuple):
    """How many rows a tensor has: a multiple of the step's tokens, or of its sampled rows."""

    of: Literal["T", "S"]
    times: int = 1

    def count(self, limits: Rows | Any) -> int:
        return self.times * int(getattr(limits, self.of))


def rows_of(value: Tensor) -> Rows:
    """Which count the first dimension of an inferred tensor stands for."""
    count = value.shape[0]
    for of, probe in PROBE_ROWS.items():
        if count and count % probe == 0:
            return Rows("T" if of == "T" else "S", count // probe)
    raise ValueError(f"the first dimension of {list(value.shape)} is no row count of a step")


def infer_node(node: Node, module: nn.Module, probe: Any) -> Any:
    """One node's value, once those that it reads have theirs."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
    match node.op:
        case "placeholder":
            return probe
        case "get_attr":
            tensor = module.get_buffer(str(node.target))
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
            )
        case "call_function" if isinstance(node.target, Op):
            return node.target.infer(*args, **kwargs)
        case "call_function" if callable(node.target):
            return node.target(*args, **kwargs)
        case "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        case "output":
            return args[0]
    raise TypeError(f"{line_of(node)}: cannot compile {node.op} {node.target}")
