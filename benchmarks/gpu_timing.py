# SPDX-License-Identifier: Apache-2.0
"""Times of work on a CUDA device: graphs of calls over distinct buffers, medians of replays."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in calls]
    times = []
    for _ in range(replays + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(calls))
    del kept
    times = sorted(times[3:])
    middle = median(times)
    return Timed(middle, (times[len(times) * 9 // 10] - times[len(times) // 10]) / middle)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over norm of the truth; infinite when anything is not finite."""
    if not bool(got.isfinite().all()):
        return float("inf")
    return float((got.double() - want.double()).norm() / want.double().norm())


def clocks() -> str:
    """What the card runs at just now."""
    query = "--query-gpu=name,clocks.sm,clocks.mem,temperature.gpu,power.draw"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "nvidia-smi tells nothing"
