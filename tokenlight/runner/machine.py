# SPDX-License-Identifier: Apache-2.0
"""What this process may use of its machine: cores, memory, GPUs; container limits counted in."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenlight.base.env import read_env

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts that "auto" is resolved against."""

    num_cores: int
    """Physical cores that this process may run on."""

    memory_bytes: int
    """Memory that this process may use, free or not."""

    num_local_ranks: int | None = None
    """That a launcher started here, to share these cores and this memory; None: all are here."""

    num_gpus: int = 0
    """CUDA devices that torch sees."""

    gpu_arch: int = 0
    """Compute capability of the first, 90 for 9.0; 0 without one."""


def read_machine(cpus: Path = _CPUS, cgroup: Path = _CGROUP) -> Machine:
    """Read the facts; the paths are arguments for tests."""
    return Machine(
        num_cores=max(1, min(_physical_cores(cpus), _quota_cores(cgroup))),
        memory_bytes=min(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _limit_bytes(cgroup)
        ),
        num_local_ranks=read_env().num_local_ranks,
        num_gpus=torch.cuda.device_count(),
        gpu_arch=_gpu_arch(),
    )


def _gpu_arch() -> int:
    if not torch.cuda.is_available():
        return 0
    major, minor = torch.cuda.get_device_capability(0)
    return 10 * major + minor


def _physical_cores(cpus: Path) -> int:
    """Hardware threads of one core share a siblings list; without one, each is a core."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        siblings = cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text().strip() if siblings.exists() else str(cpu))
    return len(cores)


def _quota_cores(cgroup: Path) -> int:
    """Whole cores of the container's quota; cgroup v2 writes "QUOTA PERIOD" or "max PERIOD"."""
    limit = cgroup / "cpu.max"
    quota, _, period = (
        limit.read_text().strip().partition(" ") if limit.exists() else ("max", "", "")
    )
    if quota == "max":
        return len(os.sched_getaffinity(0))
    return int(quota) // int(period)


def _limit_bytes(cgroup: Path) -> int:
    limit = cgroup / "memory.max"
    text = limit.read_text().strip() if limit.exists() else "max"
    return 1 << 62 if text == "max" else int(text)
