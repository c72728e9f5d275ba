# SPDX-License-Identifier: Apache-2.0
"""Rows that pad a captured step are poison, and no request notices."""

import math
from typing import Any

import pytest
from torch import Tensor

from tests.engine.rig import Rig
from tests.engine.test_invariance import REQUESTS, tokens
from tests.engine.test_overlap import staged
from tokenlight.runner.sampler import Sampler
from tokenlight.runner.staged_model import Frames, StagedModel
from tokenlight.runner.staging import Frame, Staging


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Padding has no logits but NaN; how many rows of it each step had."""
    put, forward, counts = Staging.put, StagedModel.forward, list[int]()

    def counted(self: Staging, plan: Any, frame: Frame, sampler: Sampler) -> Any:
        counts.append(frame.size.num_requests - plan.num_requests)
        return put(self, plan, frame, sampler)

    def spoilt(self: StagedModel, frames: Frames) -> tuple[Tensor, Tensor]:
        logits_SV, _ = forward(self, frames)
        slots, pad_slot = frames.own.sampled_slots, len(frames.own.step.block_table) - 1
        logits_SV = logits_SV.masked_fill((slots == pad_slot)[:, None], math.nan)
        return logits_SV, logits_SV.sum(1)

    monkeypatch.setattr(Staging, "put", counted)
    monkeypatch.setattr(StagedModel, "forward", spoilt)
    return counts


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_nobody_reads_what_padding_computes(rig: Rig, poisoned: list[int], overlap: int) -> None:
    few = REQUESTS[:11]
    alone, _ = rig.play({0: few})
    other = staged(rig, overlap=overlap, is_captured=True)
    answers, stats = other.play({2 * index: [each] for index, each in enumerate(few)})
    assert max(poisoned) > 1
    assert all(each.error is None for each in answers.values())
    assert tokens(answers) == tokens(alone)
    assert stats.num_free_blocks == stats.num_blocks
