# SPDX-License-Identifier: Apache-2.0
"""A step that fails on one rank ends all: none goes on with another step beside it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

from tests.engine.rig import Rig, generate
from tests.models.tiny import write_tiny_llama
from tests.server.fake_engine import ByteTokenizer
from tokenlight.nn import Step
from tokenlight.runner import ModelRunner
from tokenlight.runner.ranks.leader import Groups, LeadingModel
from tokenlight.runner.ranks.lost import EXIT_RANK_LOST
from tokenlight.runner.ranks.mirror import Mirror
from tokenlight.runner.ranks.steps import RankSteps, TableSize
from tokenlight.text.grammar.matching import Grammars


class Left(BaseException):
    """In place of the process's end."""


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    left: list[int] = []

    def leave(code: int) -> NoReturn:
        left.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    return left


class Broken:
    """A model whose body or head fails."""

    def __init__(self, part: str) -> None:
        self._part = part

    def hidden(self, step: Step) -> torch.Tensor:
        return self._fail_if("hidden")

    def logits(self, *_: object) -> torch.Tensor:
        return self._fail_if("logits")

    def _fail_if(self, part: str) -> torch.Tensor:
        if part == self._part:
            raise RuntimeError("a collective's other end is gone")
        return torch.zeros(1, 4)


@pytest.mark.parametrize("part", ["hidden", "logits"])
def test_a_step_that_fails_after_it_was_told_ends_the_process(codes: list[int], part: str):
    told: list[np.ndarray] = []
    size = TableSize(num_slots=1, num_columns=1, num_blocks=1)
    leading = LeadingModel(
        Broken(part),  # type: ignore[arg-type]
        RankSteps(None, size),  # type: ignore[arg-type]
        Groups(first_ranks=[0], num_slots=1),
        told.append,
    )
    one, none = torch.tensor([1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
    step = Step(
        token_ids_T=none,
        positions_T=none,
        query_starts=torch.tensor([0, 1], dtype=torch.int32),
        kv_lens=one,
        slots=none,
        block_table=none.view(1, 1),
        sampled_rows=none,
        kv=None,  # type: ignore[arg-type]
    )
    with pytest.raises(Left):
        leading(step)
    assert len(told) == 1
    assert codes == [EXIT_RANK_LOST]


class Others:
    """In place of ranks that hear no more ids once they are gone."""

    is_gone = False

    def mirror(self) -> Mirror:
        return Mirror(lambda words: None, self._share)

    def note(self, patches: np.ndarray) -> None:
        """Staged words bring them."""

    def _share(self, ids_S: torch.Tensor) -> None:
        if self.is_gone:
            raise RuntimeError("a collective's other end is gone")


def test_a_staged_step_that_fails_ends_the_process_and_a_lone_one_its_requests(
    codes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rig = Rig.load(write_tiny_llama(tmp_path / "tiny.gguf", seed=5))
    config = dataclasses.replace(rig.runner.config, overlap=1)
    model, pool, others = rig.runner._model, rig.runner._kv, Others()
    led = ModelRunner(model, pool, config, Grammars(ByteTokenizer), others)  # type: ignore[arg-type]
    assert Rig(led).play({0: [generate("a", [1, 2])]})[0]["a"].error is None
    others.is_gone = True
    with pytest.raises(Left):
        Rig(led).play({0: [generate("b", [1, 2])]})
    assert codes == [EXIT_RANK_LOST]
    alone = ModelRunner(model, pool, config, Grammars(ByteTokenizer))
    monkeypatch.setattr(alone._staged._model, "forward", Broken("logits").logits)  # type: ignore[union-attr]
    assert "is gone" in str(Rig(alone).play({0: [generate("c", [1, 2])]})[0]["c"].error)
    assert codes == [EXIT_RANK_LOST]
