# SPDX-License-Identifier: Apache-2.0
"""Which implementation each op would use on a device, and why not the others; and tuning, told."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.contract import Implementation, Op, Site, dtype_name
from tokenlight.kernels.formats import FORMATS
from tokenlight.kernels.formats.scaled import FP8
from tokenlight.kernels.machine import default_device, features
from tokenlight.kernels.ops import OPS
from tokenlight.kernels.pack import packed_format
from tokenlight.kernels.plugins import PLUGINS
from tokenlight.kernels.tuning import benches_of, save, tune, tuning_path

_TYPED_BY_INTEGERS = ("embedding", "embedding_slice", "rope_angles")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_STORED = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def explain(device: str | None = None, op: str | None = None) -> list[str]:
    """One line per op and site: what is chosen, then each other implementation and why it is not.

    Weights are of the layouts that loading makes of each format. What joins a compiled CPU step is
    marked native; a step calls the others from Python.

    Args:
        device: "cpu" or "cuda"; default: what this machine has.
        op: one op's name; default: all.

    Raises:
        ValueError: there is no such op.
    """
    chosen, names = _asked(device, op)
    lines = [f"{chosen}: {', '.join(sorted(features(chosen))) or 'no native kernels'}"]
    lines += [str(plugin) for plugin in PLUGINS]
    for name in names:
        lines += [_explain_site(OPS[name], site) for site in _sites(OPS[name], chosen)]
    return lines


def explain_tuning(device: str | None = None, op: str | None = None) -> Iterator[str]:
    """Measure the kernels of a device that compete, keep the fastest, and say so line by line.

    Raises:
        ValueError: there is no such op, or the device is not this machine's.
        ConfigError: what is found cannot be kept.
    """
    chosen, names = _asked(device, op)
    if chosen != default_device():
        raise ValueError(f"cannot measure on {chosen}: this machine has {default_device()} only")
    path = tuning_path(chosen)
    save(path, [])  # minutes are measured in vain where nothing can be kept
    found = []
    for name in names:
        for tuned in tune(OPS[name], benches_of(OPS[name], chosen)):
            found.append(tuned)
            times = sorted(tuned.relative.items(), key=lambda item: item[1])
            told = ", ".join(f"{backend} x{relative:.2f}" for backend, relative in times)
            yield f"{_named(OPS[name], tuned.site)}: {tuned.backend} ({told})"
    save(path, found)
    yield f"{len(found)} sites have a choice; kept in {path}"


def _asked(device: str | None, op: str | None) -> tuple[str, list[str]]:
    """The device and the ops that are asked about, their implementations loaded."""
    chosen = device or default_device()
    if op is not None and op not in OPS:
        raise ValueError(f"there is no op {op!r}; the ops are {', '.join(sorted(OPS))}")
    load_backends(chosen)
    return chosen, [op] if op else sorted(OPS)


def _explain_site(op: Op[..., Any], site: Site) -> str:
    best = op.bind(site)
    others = [
        f"{i.backend}: {i.why_not(site) or _lower(i, best)}"
        for i in op.implementations
        if i is not best
    ]
    told = ", native" if best.entry is not None else ""
    if not best.is_row_invariant:
        told += ", not row-invariant"
    return f"{_named(op, site)}: {best.backend}{told}" + (
        f" ({'; '.join(others)})" if others else ""
    )


def _lower(other: Implementation[..., Any], best: Implementation[..., Any]) -> str:
    """Why an implementation that could serve is not the one."""
    return f"rank {other.rank} < {best.rank}" if other.rank < best.rank else "slower when tuned"


def _named(op: Op[..., Any], site: Site) -> str:
    what = f"{op.name}[{dtype_name(site.dtype)}"
    if site.stored is not site.dtype:
        what += f", {dtype_name(site.stored)}"
    return what + (f", {site.format}]" if site.format else "]")


def _sites(op: Op[..., Any], device: str) -> Iterator[Site]:
    """The sites worth showing: float activations with each thing that the op may read."""
    activations = (
        (torch.int32,) if op.name in _TYPED_BY_INTEGERS else _FLOATS[: 1 if device == "cpu" else 3]
    )
    if op.takes_format:
        for dtype in activations:
            # Typed by indexes, they read what products of the first type would.
            meets = dtype if dtype.is_floating_point else _FLOATS[0]
            packed = (packed_format(f, device, meets) for f in (*FORMATS.values(), *FP8))
            for each in dict.fromkeys(packed):
                yield Site(device, dtype, _STORED.get(each.name, torch.uint8), each)
    elif op.is_typed_by_two:
        cached = (*_FLOATS, torch.int8 if device == "cpu" else torch.float8_e4m3fn)
        for dtype, stored in product(activations, cached):
            yield Site(device, dtype, stored, None)
    else:
        for dtype in activations:
            yield Site(device, dtype, dtype, None)
