# SPDX-License-Identifier: Apache-2.0
"""Shapes and dtypes of every node, without numbers, by running it on device "meta"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import map_arg

from tokenlight.kernels.contract import Op
from tokenlight.spmd.trace import line_of


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
