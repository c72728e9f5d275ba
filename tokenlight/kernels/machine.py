# SPDX-License-Identifier: Apache-2.0
"""What the devices of this machine can do, as names that implementations ask for."""

import functools

import torch

from tokenlight.kernels import _cpu


@functools.cache
def features(device: str) -> frozenset[str]:
    """Feature names of a device type ("cpu", "cuda"); empty where there is none.

    The compiled CPU kernels choose the instruction set themselves: its names are for the reader of
    `explain`, and for implementations that have only one.
    """
    return frozenset(_cpu.features()) if device == "cpu" else frozenset()


@functools.cache
def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
