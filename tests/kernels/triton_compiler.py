# SPDX-License-Identifier: Apache-2.0
"""Triton kernels compiled for a GPU that is not there: what they would launch, as machine code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction


class AbsentGpu:
    """As much of a driver as the compiler asks."""

    def __init__(self, arch: int) -> None:
        self.target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

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
