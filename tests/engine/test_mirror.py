# SPDX-License-Identifier: Apache-2.0
"""A rank that stages what the leading one stages has its KV, whatever kinds of steps there were."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tests.engine.rig import GREEDY, Rig, generate
from tests.engine.test_grammar import bound
from tests.engine.test_invariance import REQUESTS, SHAPED
from tests.server.fake_engine import ByteTokenizer
from tokenlight import wire
from tokenlight.kv import DevicePool
from tokenlight.runner import ModelRunner
from tokenlight.runner.ranks.message import unpack
from tokenlight.runner.ranks.mirror import Mirror, Verb, follow_mirror, read_put, read_size
from tokenlight.runner.resolve import ResolvedConfig, graph_rows
from tokenlight.runner.staging import Put, Size
from tokenlight.text.grammar.matching import Grammars


class Others:
    """In place of other ranks: what they were told, and what devices were told."""

    def __init__(self) -> None:
        self.messages: list[np.ndarray] = []
        self.shared: list[torch.Tensor] = []

    def mirror(self) -> Mirror:
        return Mirror(
            lambda words: self.messages.append(words.copy()),
            lambda ids: self.shared.append(ids.clone()),
        )

    def note(self, patches: np.ndarray) -> None:
        """Staged words bring them."""

    def hear(self, ids: torch.Tensor) -> None:
        ids.copy_(self.shared.pop(0))

    @property
    def verbs(self) -> set[Verb]:
        return {Verb(int(unpack(words, 0)[0])) for words in self.messages}


def numbers(pool: DevicePool) -> list[torch.Tensor]:
    return [cache.clone() for layer in range(2) for cache in pool.layer(layer)]


def forget(pool: DevicePool) -> None:
    for layer in range(2):
        for cache in pool.layer(layer):
            cache.fill_(math.nan)


@pytest.mark.parametrize("is_captured", [False, True], ids=["launched", "captured"])
@pytest.mark.parametrize("overlap", [1, 2])
def test_the_other_rank_has_the_same_kv(rig: Rig, overlap: int, is_captured: bool, monkeypatch):
    widths = property(lambda config: (32, config.max_model_tokens))  # steps of both
    monkeypatch.setattr(ResolvedConfig, "graph_tokens", widths)
    model, pool, others = rig.runner._model, rig.runner._kv, Others()
    config = dataclasses.replace(
        rig.runner.config,
        overlap=overlap,
        graph_rows=graph_rows(8) if is_captured else (),
        max_num_requests=8,
    )
    forget(pool)
    runner = ModelRunner(model, pool, config, Grammars(ByteTokenizer), others)  # type: ignore[arg-type]
    asked = [
        *REQUESTS[:6],
        generate("read", list(range(30)), sampling=wire.SamplingParams(num_prompt_logprobs=1)),
        generate("shaped", [4, 5, 6], sampling=SHAPED),
        generate("told", [1, 2], sampling=replace(GREEDY, num_logprobs=1)),
        bound("bound"),
    ]
    answers, _ = Rig(runner).play({2 * i: [request] for i, request in enumerate(asked)})
    assert all(answer.error is None for answer in answers.values())
    assert others.verbs == {*Verb} - (set() if is_captured else {Verb.WHOLE})
    ours = numbers(pool)
    assert not all(cache.isnan().all() for cache in ours)
    forget(pool)
    follow_mirror(model, pool, config, others.messages, share=others.hear)  # type: ignore[arg-type]
    assert not others.shared, "the other rank chose less often"
    for mine, theirs in zip(ours, numbers(pool), strict=True):
        torch.testing.assert_close(theirs, mine, rtol=0, atol=0, equal_nan=True)


def test_a_whole_table_travels_behind_the_words():
    told: list[np.ndarray] = []
    put = Put(np.arange(9, dtype=np.int32), 0, np.arange(12, dtype=np.int32).reshape(3, 4))
    Mirror(told.append).put(Verb.FORWARD, [Size(5, 3, 2, 70)], [put])
    words = unpack(told[0], 0)
    assert read_size(words) == Size(5, 3, 2, 70)
    again = read_put(words)
    assert again.words.tolist() == put.words.tolist()
    assert again.table.tolist() == put.table.tolist()
