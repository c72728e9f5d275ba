# SPDX-License-Identifier: Apache-2.0
"""Triton kernels compiled for a GPU that is not there: what they would launch, as machine code."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

_INDEX = count()


class AbsentGpu:
    """As much of a driver as the compiler asks; each is a device of its own.

    A function keeps what was compiled for a device as long as the process lives: what one test
    compiled must not be launched in the next.
    """

    def __init__(self, arch: int) -> None:
        self.target = GPUTarget("cuda", arch, 32)
        self.index = next(_INDEX)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.index

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiled_for(arch: int, cache: Path) -> Iterator[list[Any]]:
    """Within, a launch compiles its kernel and runs nothing; yields the compiled kernels."""
    kernels: list[Any] = []
    launch = JITFunction.run

    def compile_only(function: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any):
        kernels.append(launch(function, *args, grid=grid, warmup=True, **options))

    with (
        patch.object(JITFunction, "run", compile_only),
        patch.object(driver, "_active", AbsentGpu(arch)),
        patch.object(triton.knobs.cache, "dir", str(cache)),
    ):
        yield kernels
