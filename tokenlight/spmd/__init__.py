# SPDX-License-Identifier: Apache-2.0
"""The modeling compiler: trace -> check -> place -> fuse -> lower, to one program per method."""

from tokenlight.spmd.compile import compile_method
from tokenlight.spmd.infer import PROBE_ROWS, Rows
from tokenlight.spmd.program import (
    Buffer,
    Constant,
    Instruction,
    KvField,
    Limits,
    Program,
    StepField,
    View,
)

__all__ = [
    "PROBE_ROWS",
    "Buffer",
    "Constant",
    "Instruction",
    "KvField",
    "Limits",
    "Program",
    "Rows",
    "StepField",
    "View",
    "compile_method",
]
