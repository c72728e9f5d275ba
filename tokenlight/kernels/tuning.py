# SPDX-License-Identifier: Apache-2.0
"""Which kernel is fastest here, measured and kept on disk: `tokenlight kernels tune`.

One file per machine and versions, in the cache directory. What was measured elsewhere, or by
another version, is not read. Every candidate keeps the contract; references are none.
"""

import functools
import hashlib
import json
import math
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tokenlight import __version__
from tokenlight.base.env import read_env
from tokenlight.base.errors import ConfigError
from tokenlight.base.log import get_log
from tokenlight.kernels.case import Case, in_dtype
from tokenlight.kernels.contract import REFERENCE, Implementation, Op, Site, dtype_name
from tokenlight.kernels.formats import Format
from tokenlight.kernels.machine import features, has_triton
from tokenlight.kernels.ops import OPS
from tokenlight.kernels.plugins import PLUGINS

_log = get_log("kernels")

Measure = Callable[[Op[..., Any], Implementation[..., Any], Case], float]


class Tuned(NamedTuple):
    """A site, the candidates' times, and so the choice."""

    op: str
    site: Site
    relative: dict[str, float]
    """Backend -> geometric mean over the site's benches of its time over the fastest one's."""

    @property
    def backend(self) -> str:
        return min(self.relative, key=lambda backend: self.relative[backend])


def best_s(call: Callable[[], object], *, device: str = "cpu", budget_s: float = 0.3) -> float:
    """The shortest of the calls that fit the budget, at least five; the first is not counted."""
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    call()
    times: list[float] = []
    while sum(times) < budget_s or len(times) < 5:
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


def _nothing() -> None:
    pass


def measure(op: Op[..., Any], implementation: Implementation[..., Any], case: Case) -> float:
    """Seconds of a call, on copies of what it writes."""
    args = [a.clone() if i in op.mutates else a for i, a in enumerate(case.args)]
    device = op.site(*case.args, **case.kwargs).device
    return best_s(lambda: implementation.run(*args, **case.kwargs), device=device, budget_s=0.1)


def benches_of(op: Op[..., Any], device: str) -> list[Case]:
    """What an op is measured on: float32 activations on a CPU, bfloat16 on a GPU."""
    room = import_module(op.contract.__module__.replace(".contract", ".cases"))
    benches: list[Case] = room.benches(device)
    if device == "cpu":
        return benches
    return [in_dtype(case, torch.bfloat16) if case.activations else case for case in benches]


def tune(op: Op[..., Any], cases: list[Case], measured: Measure = measure) -> Iterator[Tuned]:
    """Measure each site of `cases` that several kernels can serve."""
    by_site: dict[Site, list[Case]] = {}
    for case in cases:
        by_site.setdefault(op.site(*case.args, **case.kwargs), []).append(case)
    for site, its_cases in by_site.items():
        able = [i for i in op.implementations if i.rank > REFERENCE and i.why_not(site) is None]
        if len(able) < 2:
            continue
        logs = dict.fromkeys((i.backend for i in able), 0.0)
        for case in its_cases:
            times = {i.backend: measured(op, i, case) for i in able}
            fastest = min(times.values())
            for backend, seconds in times.items():
                logs[backend] += math.log(seconds / fastest) / len(its_cases)
        yield Tuned(op.name, site, {backend: math.exp(log) for backend, log in logs.items()})


def tuning_path(device: str, cache_dir: Path | None = None) -> Path:
    """Where this machine's choices are kept; another machine or version has another name."""
    digest = hashlib.sha256(json.dumps(machine_facts(device)).encode()).hexdigest()[:16]
    return (cache_dir or read_env().cache_dir) / "kernels" / f"{device}-{digest}.json"


@functools.cache
def machine_facts(device: str) -> tuple[str, ...]:
    """What a measured time depends on, besides the load: processor, threads, versions."""
    if device == "cuda" and torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    else:
        name = f"{_processor()}, {torch.get_num_threads()} threads"
    compilers = [version("triton")] if device == "cuda" and has_triton() else []
    plugins = [plugin.package for plugin in PLUGINS if plugin.added]
    return (name, *sorted(features(device)), *plugins, __version__, torch.__version__, *compilers)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def save(path: Path, tuned: list[Tuned]) -> None:
    """Keep choices; those of sites that were not measured now stay as they were.

    Raises:
        ConfigError: there is no place for them.
    """
    sites = _read(path) | {_key(t.op, t.site): t.backend for t in tuned}
    machine = machine_facts(path.name[: path.name.index("-")])
    # Two processes may both get here: each renames a whole file of its own into place.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"machine": machine, "sites": sites}, indent=1))
        os.replace(part, path)
    except OSError as fault:
        raise ConfigError(
            f"what is measured cannot be kept in {path.parent}: {fault.strerror}; set "
            f"TOKENLIGHT_CACHE to a directory that can be written"
        ) from None


def apply(path: Path, ops: dict[str, Op[..., Any]]) -> int:
    """Let the ops prefer what the file says; how many sites it names."""
    sites = _read(path)
    chosen: dict[str, dict[Site, str]] = {}
    for key, backend in sites.items():
        name, site = _parse(key)
        if name in ops:
            chosen.setdefault(name, {})[site] = backend
    for name, backends in chosen.items():
        ops[name].prefer(backends)
    return len(sites)


def apply_default(device: str) -> None:
    """What a process starts with, unless TOKENLIGHT_KERNEL_TUNING says to ignore it."""
    if read_env().kernel_tuning == "use":
        apply(tuning_path(device), OPS)


def ignore_tuning() -> None:
    """Keep to ranks from now on, in this process: machines of one kind then choose alike."""
    for op in OPS.values():
        op.prefer({})


def _read(path: Path) -> dict[str, str]:
    """The file's choices; none of a file that is missing or damaged, which is only slower."""
    try:
        sites: dict[str, str] = json.loads(path.read_text())["sites"]
        return {key: backend for key, backend in sites.items() if _parse(key)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("tuning_ignored path=%s error=%r", path, error)
        return {}


def _key(op: str, site: Site) -> str:
    f = site.format
    named = "" if f is None else f"{f.name},{f.block_elements},{f.block_bytes},{f.layout}"
    return "|".join((op, site.device, dtype_name(site.dtype), dtype_name(site.stored), named))


def _parse(key: str) -> tuple[str, Site]:
    op, device, dtype, stored, named = key.split("|")
    weight_format = None
    if named:
        name, elements, num_bytes, layout = named.split(",")
        weight_format = Format(name, int(elements), int(num_bytes), layout)
    return op, Site(device, getattr(torch, dtype), getattr(torch, stored), weight_format)
