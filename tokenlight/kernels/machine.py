# SPDX-License-Identifier: Apache-2.0
"""What the devices of this machine can do, as names that implementations ask for."""

import functools
import importlib.util

import torch


@functools.cache
def features(device: str) -> frozenset[str]:
    """Feature names of a device type ("cpu", "cuda"); empty where there is none.

    `native` means that the compiled kernels are there: they dispatch by instruction set themselves,
    so the instruction sets are named for the reader of `explain` only.
    """
    if device != "cpu":
        return frozenset()
    if importlib.util.find_spec("tokenlight.kernels._cpu") is None:
        return frozenset()
    from tokenlight.kernels import _cpu

    return frozenset({"native", *_cpu.features()})


@functools.cache
def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
