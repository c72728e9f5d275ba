# SPDX-License-Identifier: Apache-2.0
"""The machine, the packages and the settings, as a bug report needs them; no keys."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import metadata
from pathlib import Path

from tokenlight import __version__
from tokenlight.base.env import read_env

_PACKAGES = (
    *("torch", "numpy", "tokenizers", "jinja2", "pyzmq", "msgspec"),
    *("starlette", "uvicorn", "h11", "prometheus-client", "httpx"),
)
_SECRET = frozenset({"api_key"})


def facts() -> Iterator[tuple[str, str]]:
    """Name and value, in the order that a reader asks."""
    yield "tokenlight", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield "libc", " ".join(platform.libc_ver())
    yield "cpu", f"{_cpu_name()}, {os.cpu_count()} logical, {_usable_cpus()} usable here"
    yield "cpu features", _cpu_features() or "unknown"
    yield "memory", f"{_memory_bytes() / 2**30:.1f} GiB"
    yield "torch device", _torch_device()
    for package in _PACKAGES:
        yield package, _version(package)
    yield from _settings()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")


def _cpu_name() -> str:
    return _cpuinfo("model name") or platform.machine()


def _cpu_features() -> str:
    wanted = (
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512_vnni",
        "avx_vnni",
        "avx512_bf16",
        "amx_tile",
    )
    arm = ("asimd", "asimddp", "i8mm", "sve", "bf16")
    present = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    return " ".join(f for f in (*wanted, *arm) if f in present)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _torch_device() -> str:
    # The one fact that needs torch; without it the rest is still worth printing.
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "cpu only"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (CUDA {torch.version.cuda})"


def _settings() -> Iterator[tuple[str, str]]:
    env = read_env()
    for field in fields(env):
        value = getattr(env, field.name)
        shown = "set" if field.name in _SECRET and value is not None else str(value)
        yield f"env {field.name}", shown
