# SPDX-License-Identifier: Apache-2.0
"""A staged step's inputs travel in one copy, from pinned memory; what it sampled comes in another.

The device is the CPU here: what would travel is a `copy_` between two of its tensors.
"""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.rig import Rig
from tests.engine.test_invariance import REQUESTS
from tests.engine.test_overlap import staged
from tokenlight.runner.staged import StagedSteps
from tokenlight.runner.staging import Staging


class Copies(TorchDispatchMode):
    """Where each copy went to, within."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            self.targets.append(args[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("overlap", [1, 2])
def test_the_inputs_of_a_step_travel_in_one_copy(rig: Rig, monkeypatch, overlap: int) -> None:
    """Prompts, chunks, decodes, and what changed of the block table."""
    put, travelled = Staging.put, []

    def counted(staging: Staging, *args: Any) -> Any:
        with Copies() as copies:
            done = put(staging, *args)
        told = [(each.data_ptr(), each.numel()) for each in copies.targets]
        travelled.append((told, [(staging._device.data_ptr(), len(done.words))], done.num_patches))
        return done

    monkeypatch.setattr(Staging, "put", counted)
    answers, _ = staged(rig, overlap=overlap, is_captured=True).play({0: REQUESTS})
    assert all(each.error is None for each in answers.values())
    assert len(travelled) > 30
    assert all(told == wanted for told, wanted, _ in travelled)
    assert 0 < sum(num_patches > 0 for *_, num_patches in travelled) < len(travelled)


def test_what_was_sampled_comes_back_in_one_copy(rig: Rig, monkeypatch) -> None:
    """Ids and the sums of logits, whatever else a step replays."""
    send_back, travelled = StagedSteps._send_back, []

    def counted(steps: StagedSteps, *args: Any) -> Any:
        with Copies() as copies:
            launched = send_back(steps, *args)
        travelled.append([each.data_ptr() for each in copies.targets])
        return launched

    monkeypatch.setattr(StagedSteps, "_send_back", counted)
    other = staged(rig, overlap=1, is_captured=True)
    answers, _ = other.play({0: REQUESTS[:3]})
    assert all(each.error is None for each in answers.values())
    assert len(travelled) > 10
    returns = {each.data_ptr() for each in other.runner._staged._returns}
    assert all(len(told) == 1 and told[0] in returns for told in travelled)


def test_what_travels_is_pinned_on_the_host(rig: Rig, monkeypatch) -> None:
    """A buffer for each step that may be in flight, and one that is being written."""
    asked: list[bool] = []
    zeros, full = torch.zeros, torch.full

    def on_host(*size: Any, device: object = None, pin_memory: bool = False, **kw: Any) -> Any:
        if device is None:
            asked.append(pin_memory)
        return zeros(*size, **kw)

    monkeypatch.setattr(torch, "zeros", on_host)
    monkeypatch.setattr(torch, "full", lambda *args, device, **kw: full(*args, **kw))
    config = staged(rig, overlap=2, is_captured=False).runner.config
    asked.clear()
    Staging(config, rig.runner._kv, torch.device("cuda"))
    assert asked == [True] * 3


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_what_a_step_reads_stays_until_it_is_waited_for(rig: Rig, monkeypatch, overlap) -> None:
    """A device may copy it as late as that; here it was copied at once, and so is looked at."""
    put, finish = Staging.put, StagedSteps.finish
    in_flight: deque[tuple[np.ndarray, np.ndarray]] = deque()
    most, is_kept = 0, []

    def remembered(staging: Staging, *args: Any) -> Any:
        nonlocal most
        done = put(staging, *args)
        in_flight.append((done.words, done.words.copy()))
        most = max(most, len(in_flight))
        return done

    def compared(steps: StagedSteps, launched: Any) -> Any:
        words, before = in_flight.popleft()
        is_kept.append(np.array_equal(words, before))
        return finish(steps, launched)

    monkeypatch.setattr(Staging, "put", remembered)
    monkeypatch.setattr(StagedSteps, "finish", compared)
    answers, _ = staged(rig, overlap=overlap, is_captured=True).play({0: REQUESTS})
    assert all(each.error is None for each in answers.values())
    assert most == overlap + 1
    assert len(is_kept) > 30
    assert all(is_kept)
