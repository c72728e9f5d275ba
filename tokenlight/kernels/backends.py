# SPDX-License-Identifier: Apache-2.0
"""Which files of the ops' folders are imported: those that this machine can run or explain.

References and CPU kernels always, by the folders themselves. What is written for a GPU only where
one is there or somebody asks about CUDA: importing Triton takes time, and it may not be installed.
"""

import functools
from importlib import import_module
from importlib.util import find_spec

from tokenlight.kernels.machine import has_triton
from tokenlight.kernels.ops import OPS


@functools.cache
def load_backends(device: str) -> None:
    """Import the implementations that are written for a device type alone: one file, found."""
    if device != "cuda":
        return
    for backend in ("triton", "cuda") if has_triton() else ("cuda",):
        for op in OPS.values():
            module = op.contract.__module__.replace(".contract", f".{backend}")
            if find_spec(module):
                import_module(module)


def withdraw_row_dependent() -> None:
    """Compile into nothing, in this process, what may give a row other bits in other company."""
    for op in OPS.values():
        for each in op.implementations:
            if not each.is_row_invariant:
                op.withdraw(each.backend)
