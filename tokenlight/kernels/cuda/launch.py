# SPDX-License-Identifier: Apache-2.0
"""Kernels of a CUDA source, launched through the driver on torch's current stream.

A kernel takes one struct by value. It may start before the kernel ahead of it in the stream has
ended (programmatic dependent launch): each source says itself where it waits. Launches allocate
nothing and wait for nothing, so torch captures them in graphs.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from tokenlight.kernels.cuda.ahead import CUBINS
from tokenlight.kernels.cuda.compile import ARCH, sources


class LaunchFailed(Exception):
    """The driver refused; the message has its name for the reason."""


def check(status: Any, what: str) -> None:
    """Of a call of the driver.

    Raises:
        LaunchFailed: it was not a success.
    """
    if int(status):
        raise LaunchFailed(f"{what}: {status.name}")


@functools.cache
def num_multiprocessors() -> int:
    """Of the current device."""
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


@functools.cache
def _arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return ARCH if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def compile_ahead() -> None:
    """Begin to compile every source for the current device."""
    CUBINS.begin(sources(), _arch())


class Source:
    """A `cuda.cu`. Its library is loaded at the first launch of one of its kernels."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kernels: dict[tuple[str, int], Kernel] = {}
        self.shared_bytes: dict[str, int] = {}
        """The most that each kernel has been made for."""

    @functools.cached_property
    def library(self) -> Any:
        from cuda.bindings import driver

        cubin = CUBINS.get(self.path, _arch())
        status, library = driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)
        check(status, f"loading {self.path}")
        return library

    def kernel(self, name: str, *, threads: int, shared_bytes: int = 0) -> Kernel:
        """The kernel of this name with this much dynamic shared memory; made once."""
        key = name, shared_bytes
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = Kernel(self, name, threads, shared_bytes)
        return found


class Kernel:
    """One `extern "C"` kernel with its block size and dynamic shared memory."""

    def __init__(self, source: Source, name: str, threads: int, shared_bytes: int) -> None:
        from cuda.bindings import driver

        self.name = name
        self._driver = driver
        status, handle = driver.cuLibraryGetKernel(source.library, name.encode())
        check(status, f"finding {name}")
        most = source.shared_bytes.get(name, 48 * 1024)
        if shared_bytes > most:
            source.shared_bytes[name] = shared_bytes
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = torch.cuda.current_device()
            (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, handle, device)
            check(status, f"{shared_bytes} bytes of shared memory for {name}")
        self._function = driver.CUfunction(int(handle))
        overlap = driver.CUlaunchAttribute()
        overlap.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        overlap.value.programmaticStreamSerializationAllowed = 1
        self._config = driver.CUlaunchConfig()
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = threads, 1, 1
        self._config.gridDimY, self._config.gridDimZ = 1, 1
        self._config.sharedMemBytes = shared_bytes
        self._config.attrs = [overlap]
        self._config.numAttrs = 1

    def launch(self, grid: tuple[int, int], params: ctypes.Structure) -> None:
        """Queue it on the current stream; `params` may be dropped as soon as this returns.

        Raises:
            LaunchFailed: the driver refused.
        """
        config = self._config
        config.gridDimX, config.gridDimY = grid
        config.hStream = torch.cuda.current_stream().cuda_stream
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        (status,) = self._driver.cuLaunchKernelEx(
            config, self._function, ctypes.addressof(pointers), 0
        )
        check(status, f"launching {self.name} over {grid}")


_WORKSPACES: dict[tuple[str, int], torch.Tensor] = {}


def workspace(name: str, num_bytes: int, device: torch.device) -> torch.Tensor:
    """Zeroed memory that kernels called `name` leave zeroed where they count on it, kept for good.

    It grows in powers of two; kernels of one stream share it. What a captured graph holds is not
    grown under its feet: the old memory stays.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    kept = _WORKSPACES.get((name, index))
    if kept is not None and kept.numel() >= num_bytes:
        return kept
    grown = torch.zeros(1 << (num_bytes - 1).bit_length(), dtype=torch.uint8, device=device)
    if torch.cuda.is_current_stream_capturing():
        return grown  # the graph's own: another may not use it
    if kept is not None:
        _OUTGROWN.append(kept)
    _WORKSPACES[name, index] = grown
    return grown


_OUTGROWN: list[torch.Tensor] = []
