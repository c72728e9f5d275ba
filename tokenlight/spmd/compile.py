# SPDX-License-Identifier: Apache-2.0
"""All passes in their order."""

from typing import Any

import torch
from torch import nn

from tokenlight.spmd.fuse import fuse
from tokenlight.spmd.infer import infer
from tokenlight.spmd.lower import lower
from tokenlight.spmd.program import Limits, Program
from tokenlight.spmd.trace import trace


@torch.no_grad()
def compile_method(
    module: nn.Module, method: str, probe: Any, *, device: torch.device, limits: Limits
) -> Program:
    """The program of `module.method(step)`, whose weights are filled.

    Args:
        module: the model.
        method: takes one argument, reads its fields, returns one tensor.
        probe: such an argument with tensors of device "meta" and `PROBE_ROWS` rows.
        device: where it will run.
        limits: the most rows that it will be run with.
    """
    graph = trace(module, method)
    infer(graph, module, probe)
    fuse(graph, device)
    infer(graph, module, probe)
    return lower(graph, module, device, limits)
