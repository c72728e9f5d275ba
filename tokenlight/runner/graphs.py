# SPDX-License-Identifier: Apache-2.0
"""A step's launches, recorded once and repeated without Python.

What is recorded reads and writes fixed memory: inputs are put where it looks for them, results are
where they were the first time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Run = Callable[[], tuple[Tensor, ...]]

_WARMUPS = 2


@dataclass(frozen=True, slots=True)
class Recorded:
    """Replays are queued on the current stream; `results` are rewritten by each."""

    results: tuple[Tensor, ...]
    replay: Callable[[], None]


class Recorder(Protocol):
    """How a device records. `run` must not wait for the device, nor depend on what it reads."""

    def record(self, run: Run) -> Recorded: ...


class CudaGraphs:
    """CUDA graphs that share one memory pool: only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def record(self, run: Run) -> Recorded:
        """Run a few times first: kernels are compiled and their handles made by then."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARMUPS):
                run()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may call CUDA meanwhile; only this one's calls are recorded.
        with (
            _no_garbage_collected(),
            torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ),
        ):
            results = run()
        return Recorded(results, graph.replay)


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """What garbage holds of CUDA's, as the graphs of an engine before, may not go in a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Rerun:
    """Runs again each time, and copies the results to where the first ones lie.

    For devices without graphs: it keeps every rule that a graph would, so that the rest of the
    runner is the same.
    """

    def record(self, run: Run) -> Recorded:
        results = run()

        def replay() -> None:
            for kept, new in zip(results, run(), strict=True):
                kept.copy_(new)

        return Recorded(results, replay)
