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


OF_ANY_ORDER = ("cuda", "triton_prefill")
"""Backends that add in another order where rows are few, or many, or are the vendor's."""


def withdraw(backend: str) -> None:
    """Compile nothing with this backend from now on, in this process."""
    for op in OPS.values():
        op.withdraw(backend)
