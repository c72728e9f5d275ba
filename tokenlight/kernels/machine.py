# SPDX-License-Identifier: Apache-2.0
"""What the devices of this machine can do, as names that implementations ask for."""

import functools
import importlib.util
from pathlib import Path

import torch

from tokenlight.kernels import _cpu

# Flags of /proc/cpuinfo, x86 and Arm, and what implementations ask for.
_CPU_FLAGS = {
    "avx2": "avx2",
    "avx512bw": "avx512",
    "avx512_vnni": "vnni",
    "avx_vnni": "vnni",
    "avx512_bf16": "bf16",
    "amx_int8": "amx",
    "asimd": "neon",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
}
# Compute capabilities that kernels tell apart; one has the features of all below it.
_CUDA_ARCHES = (80, 86, 89, 90, 100, 120)


@functools.cache
def features(device: str) -> frozenset[str]:
    """Feature names of a device type ("cpu", "cuda"); empty where there is none.

    On a CPU, instruction sets, from the extensions that the processor reports; the compiled kernels
    choose among them themselves. On CUDA, "sm80" and so on up to what the device has.
    """
    if device == "cpu":
        return frozenset(_cpu.features()) | read_cpu_extensions()
    if device == "cuda" and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return frozenset(f"sm{arch}" for arch in _CUDA_ARCHES if arch <= 10 * major + minor)
    return frozenset()


@functools.cache
def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def read_cpu_extensions(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction sets of the processor by the system's list; the path is an argument for tests."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    listed = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(_CPU_FLAGS[f] for f in next(listed, "").split() if f in _CPU_FLAGS)
