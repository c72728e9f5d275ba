# SPDX-License-Identifier: Apache-2.0
"""Times of work on a CUDA device: graphs of calls over distinct buffers, medians of replays."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

COPY_BYTES_PER_S = 4.24e12
"""What a copy reaches on an H200, read and written: the yardstick of the figures."""

L2_BYTES = 60 << 20


@dataclass(frozen=True, slots=True)
class Timed:
    """Of one call of a graph of several."""

    us: float
    spread: float
    """(90th - 10th percentile) / median."""


def time_graph(calls: Sequence[Callable[[], object]], *, replays: int = 25) -> Timed:
    """Capture all calls in one graph, replay it, and tell a call's share."""
    return time_in_turn([calls], replays=replays)[0]


def time_in_turn(
    sides: Sequence[Sequence[Callable[[], object]]], *, replays: int = 25
) -> list[Timed]:
    """A graph for each side's calls, replayed in turns: what slows the machine slows them all."""
    captured = [_capture(calls) for calls in sides]
    us: list[list[float]] = [[] for _ in sides]
    for turn in range(replays + 3):
        order = range(len(sides)) if turn % 2 else reversed(range(len(sides)))
        for side in order:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            captured[side][0].replay()
            end.record()
            end.synchronize()
            us[side].append(start.elapsed_time(end) * 1e3 / len(sides[side]))
    return [_timed(each[3:]) for each in us]


def _capture(calls: Sequence[Callable[[], object]]) -> tuple[torch.cuda.CUDAGraph, list[object]]:
    """All calls in one graph, and what they gave: its memory."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # what the calls read may just be filled
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in calls]
    return graph, kept


def _timed(us: list[float]) -> Timed:
    us = sorted(us)
    middle = median(us)
    return Timed(middle, (us[len(us) * 9 // 10] - us[len(us) // 10]) / middle)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over norm of the truth; infinite when anything is not finite."""
    if not bool(got.isfinite().all()):
        return float("inf")
    return float((got.double() - want.double()).norm() / want.double().norm())


def clocks() -> str:
    """What the card runs at just now; nothing is set."""
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    query = "--query-gpu=name,clocks.sm,clocks.mem,temperature.gpu,power.draw"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "nvidia-smi tells nothing"


def commit() -> str:
    """Of the tree that is measured."""
    if shutil.which("git") is None:
        return "unknown"
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
