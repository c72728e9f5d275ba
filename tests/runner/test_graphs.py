# SPDX-License-Identifier: Apache-2.0
"""What is asked of CUDA when a step is captured, by a fake of it; and what a CPU does instead.

The fake keeps the rules of a capture: what runs within is recorded and does not happen, and a
replay does it again on the memory that it was recorded with.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tokenlight.runner.graphs import CudaGraphs, Recorder, Rerun


class Recording(TorchDispatchMode):
    """Notes each call and what it gave, to make it again into the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))

        def again() -> None:
            made = func(*args, **(kwargs or {}))
            if made is not out and made.data_ptr() != out.data_ptr():
                out.copy_(made)

        self.calls.append(again)
        return out


class Stream:
    """One that other streams wait for."""

    def __init__(self, told: list[str], name: str) -> None:
        self._told, self.name = told, name

    def wait_stream(self, other: "Stream") -> None:
        self._told.append(f"{self.name} waits for {other.name}")


class Graph:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def replay(self) -> None:
        for again in self.calls:
            again()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of CUDA, in order."""
    said: list[str] = []
    current = [Stream(said, "main")]

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    @contextmanager
    def graph(
        made: Graph, *, pool: object, stream: Stream, capture_error_mode: str
    ) -> Iterator[None]:
        said.append(f"capture in {pool} on {stream.name}, errors {capture_error_mode}")
        with on(stream), Recording() as recording:
            yield
        made.calls = recording.calls

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "the pool")
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(said, "side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    return said


def test_a_capture_is_warmed_up_on_a_stream_of_its_own_and_shares_one_pool(told) -> None:
    recorder = CudaGraphs()

    def run() -> tuple[Tensor, ...]:
        told.append(f"ran on {torch.cuda.current_stream().name}")
        return (torch.zeros(1),)

    recorder.record(run)
    capture = "capture in the pool on side, errors thread_local"
    warmed = ["side waits for main", "ran on side", "ran on side", "main waits for side"]
    assert told == [*warmed, capture, "ran on side"]
    told.clear()
    recorder.record(run)
    assert told == [*warmed, capture, "ran on side"]


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_collected_in_a_capture(told, was_enabled: bool) -> None:
    """It may hold graphs, as an engine before this one did: to free one ends the capture."""
    during: list[bool] = []

    def run() -> tuple[Tensor, ...]:
        during.append(gc.isenabled())
        if len(during) == 6:
            raise ValueError("a kernel that cannot be captured")
        return (torch.zeros(1),)

    (gc.enable if was_enabled else gc.disable)()
    try:
        CudaGraphs().record(run)
        assert during == [was_enabled, was_enabled, False]
        assert gc.isenabled() is was_enabled
        with pytest.raises(ValueError, match="cannot be captured"):
            CudaGraphs().record(run)
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [CudaGraphs, Rerun])
def test_a_replay_reads_and_writes_the_memory_that_was_recorded(
    told, make: Callable[[], Recorder]
) -> None:
    """Inputs are put where they were; results are where they were; nothing else is kept."""
    x, kept = torch.ones(3), torch.zeros(3)

    def run() -> tuple[Tensor, ...]:
        doubled = x * 2
        kept.copy_(doubled + 1)
        return doubled, doubled.sum()

    recorded = make().record(run)
    doubled, total = recorded.results
    places = doubled.data_ptr(), total.data_ptr()
    for value in (5.0, -1.0):
        x.fill_(value)
        recorded.replay()
        assert doubled.tolist() == [2 * value] * 3
        assert total.item() == 6 * value
        assert kept.tolist() == [2 * value + 1] * 3
    assert (doubled.data_ptr(), total.data_ptr()) == places
