# SPDX-License-Identifier: Apache-2.0
"""The modeling compiler: trace -> check -> place -> fuse -> lower, to one program per method."""

from tokenlight.spmd.compile import Ranks, compile_method, placed_graph
from tokenlight.spmd.dispatch import can_dispatch, dispatch_pays
from tokenlight.spmd.mesh import Mesh, Widths
from tokenlight.spmd.native import NativeProgram
from tokenlight.spmd.placement import (
    PARTIAL,
    REPLICATE,
    Layout,
    PlacementError,
    Shard,
    placed,
)
from tokenlight.spmd.program import (
    Buffer,
    Constant,
    Instruction,
    KvField,
    Program,
    StepField,
    View,
)
from tokenlight.spmd.rows import PROBE_ROWS, Limits, Rows
from tokenlight.spmd.shards import build_chain, pieces, weight_layouts

__all__ = [
    "PARTIAL",
    "PROBE_ROWS",
    "REPLICATE",
    "Buffer",
    "Constant",
    "Instruction",
    "KvField",
    "Layout",
    "Limits",
    "Mesh",
    "NativeProgram",
    "PlacementError",
    "Program",
    "Ranks",
    "Rows",
    "Shard",
    "StepField",
    "View",
    "Widths",
    "build_chain",
    "can_dispatch",
    "compile_method",
    "dispatch_pays",
    "pieces",
    "placed",
    "placed_graph",
    "weight_layouts",
]
