# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks with other requests, whose steps are staged: each answer is that of one device.

Each group is one rank here, on a thread of its own, with the whole model: what ranks exchange goes
through queues.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from tests.engine.rig import BLOCK_TOKENS, GREEDY, Rig, generate
from tests.engine.test_grammar import bound
from tests.engine.test_invariance import REQUESTS, SHAPED, tokens
from tests.models.tiny import write_tiny_llama
from tests.server.fake_engine import ByteTokenizer
from tokenlight import wire
from tokenlight.control import Plan
from tokenlight.kv import DevicePool
from tokenlight.runner import ModelRunner
from tokenlight.runner.ranks.message import unpack
from tokenlight.runner.ranks.mirror import Mirror, Verb, follow_mirror, read_put, read_size
from tokenlight.runner.resolve import graph_rows
from tokenlight.runner.sampler import Sampler
from tokenlight.runner.staged_model import Place
from tokenlight.runner.staging import Frame, Put, Staging
from tokenlight.text.grammar.matching import Grammars

WAIT_S = 60
NUM_SLOTS = 8
# Of every kind: logits that are read, shaped, told, bound to a grammar, in one or the other group.
SPECIAL = [
    generate("read", list(range(30)), sampling=wire.SamplingParams(num_prompt_logprobs=1)),
    generate("read-too", list(range(40, 60)), sampling=wire.SamplingParams(num_prompt_logprobs=2)),
    generate("shaped", [4, 5, 6], sampling=SHAPED),
    generate("told", [1, 2], sampling=replace(GREEDY, num_logprobs=2)),
    bound("bound"),
    bound("bound-too"),
]
ASKED = {2 * i: [request] for i, request in enumerate([*REQUESTS[:14], *SPECIAL])}


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> list[Rig]:
    """The same model for each group."""
    path = write_tiny_llama(tmp_path_factory.mktemp("groups") / "tiny.gguf", seed=5)
    return [Rig.load(path) for _ in range(2)]


class Other:
    """The rank of the second group, as the leading one reaches it."""

    def __init__(self, rig: Rig, config: Any) -> None:
        self.messages: list[np.ndarray] = []
        self._words: Queue[np.ndarray | None] = Queue()
        self._ids: Queue[Tensor] = Queue()
        self._logits: Queue[Tensor] = Queue()
        self._fault: BaseException | None = None
        self._thread = Thread(target=self._follow, args=(rig, config))
        self._thread.start()

    def mirror(self) -> Mirror:
        place = Place(num_groups=2, collect=self._collect)
        return Mirror(self._tell, lambda ids: self._ids.put(ids.clone()), place)

    def note(self, patches: np.ndarray) -> None:
        """Staged words bring them."""

    def end(self) -> None:
        self._words.put(None)
        self._thread.join(WAIT_S)
        assert self._fault is None

    def _tell(self, words: np.ndarray) -> None:
        self.messages.append(words.copy())
        self._words.put(words.copy())

    def _collect(self, logits_SV: Tensor, num_rows: Sequence[int]) -> Tensor:
        other_SV = self._logits.get(timeout=WAIT_S)
        assert [len(logits_SV), len(other_SV)] == list(num_rows)
        return torch.cat([logits_SV, other_SV])

    def _give(self, logits_SV: Tensor, num_rows: Sequence[int]) -> Tensor:
        self._logits.put(logits_SV.clone())
        return logits_SV

    def _told(self) -> Iterator[np.ndarray]:
        while (words := self._words.get(timeout=WAIT_S)) is not None:
            yield words

    def _hear(self, ids: Tensor) -> None:
        ids.copy_(self._ids.get(timeout=WAIT_S))

    def _follow(self, rig: Rig, config: Any) -> None:
        try:
            follow_mirror(
                rig.runner._model,  # type: ignore[arg-type]
                rig.runner._kv,
                config,
                self._told(),
                share=self._hear,
                place=Place(2, 1, is_leading=False, collect=self._give),
            )
        except BaseException as fault:  # for the test to raise
            self._fault = fault


def forget(pool: DevicePool) -> None:
    for layer in range(2):
        for cache in pool.layer(layer):
            cache.fill_(math.nan)


@contextmanager
def grouped(
    rigs: Sequence[Rig], *, overlap: int, is_captured: bool, **sizes: int
) -> Iterator[tuple[Rig, Other]]:
    """Both groups behind one engine."""
    sizes = {"max_num_requests": NUM_SLOTS, **sizes}
    config = dataclasses.replace(
        rigs[0].runner.config,
        overlap=overlap,
        num_groups=2,
        graph_rows=graph_rows(NUM_SLOTS) if is_captured else (),
        **sizes,
    )
    for rig in rigs:
        forget(rig.runner._kv)
    other = Other(rigs[1], config)
    try:
        model, pool = rigs[0].runner._model, rigs[0].runner._kv
        yield Rig(ModelRunner(model, pool, config, Grammars(ByteTokenizer), other)), other  # type: ignore[arg-type]
    finally:
        other.end()


@pytest.fixture(scope="module")
def alone(rigs: list[Rig]) -> dict[str, Any]:
    config = dataclasses.replace(rigs[0].runner.config)
    model, pool = rigs[0].runner._model, rigs[0].runner._kv
    return Rig(ModelRunner(model, pool, config, Grammars(ByteTokenizer))).play(ASKED)[0]


@pytest.mark.parametrize(("overlap", "is_captured"), [(0, True), (1, False), (1, True), (2, True)])
def test_groups_answer_as_one_device_does(
    rigs: list[Rig], alone: dict[str, Any], overlap: int, is_captured: bool
) -> None:
    with grouped(rigs, overlap=overlap, is_captured=is_captured) as (rig, other):
        answers, stats = rig.play(ASKED)
    assert tokens(answers) == tokens(alone)
    for name in ("read", "read-too", "told"):
        assert answers[name].prompt_logprobs == alone[name].prompt_logprobs
        assert answers[name].logprobs == alone[name].logprobs
    assert stats.num_free_blocks == stats.num_blocks
    parts = [[unpack(words, group) for group in (0, 1)] for words in other.messages]
    verbs = {Verb(int(own[0])) for own, _ in parts}
    assert verbs == {*Verb} - (set() if is_captured else {Verb.WHOLE})
    for both in parts:
        if int(both[0][0]) in (Verb.WHOLE, Verb.FORWARD, Verb.HIDDEN):
            mine, theirs = map(read_size, both)
            assert mine.num_tokens == theirs.num_tokens
    assert not all(cache.isnan().all() for cache in rigs[1].runner._kv.layer(0))


def test_a_group_without_requests_does_nothing_but_keeps_step(rigs: list[Rig]) -> None:
    """And again with other requests than before, wherever they are."""
    with grouped(rigs, overlap=1, is_captured=True) as (rig, _):
        first, _ = rig.play({0: [REQUESTS[0]]})
        second, _ = rig.play({0: REQUESTS[:3], 40: REQUESTS[3:5]})
    truth, _ = rigs[0].play({0: REQUESTS[:5]})
    assert tokens(first) == {k: v for k, v in tokens(truth).items() if k == "r0"}
    assert tokens(second) == tokens(truth)


def test_a_table_that_nobody_knows_is_sent_whole_once_its_group_has_requests(
    rigs: list[Rig],
) -> None:
    """As after a step that failed while it was staged."""
    with grouped(rigs, overlap=0, is_captured=True) as (rig, other):
        staged = rig.runner._staged
        assert staged is not None
        staged._model.stagings[1]._is_stale = True
        rig.play({0: [REQUESTS[0]]})
        num_lone = len(other.messages)
        rig.play({0: REQUESTS[:4]})
    had_tables = [read_put(unpack(words, 1)).table is not None for words in other.messages]
    assert had_tables == [False] * num_lone + [True] + [False] * (len(had_tables) - num_lone - 1)


@pytest.mark.parametrize("which", [0, 1])
def test_what_was_put_before_a_group_failed_is_brought_again(
    rigs: list[Rig], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("no memory")]
    brought: list[bool] = []
    real = Staging.put

    def put(staging: Staging, plan: Plan, frame: Frame, sampler: Sampler) -> Put:
        told = real(staging, plan, frame, sampler)
        for slot, kv_len in zip(plan.slots, plan.kv_lens, strict=True):
            columns = -(-int(kv_len) // BLOCK_TOKENS)
            row = staging._table[int(slot), :columns].numpy()
            brought.append(np.array_equal(row, plan.block_table[slot, :columns]))
        return told

    with grouped(rigs, overlap=1, is_captured=True) as (rig, _):
        staged = rig.runner._staged
        assert staged is not None
        failing = staged._model.stagings[which]
        write = failing._write_patches

        def write_but_once(*args: Any) -> int:
            if faults:
                raise faults.pop()
            return write(*args)

        monkeypatch.setattr(failing, "_write_patches", write_but_once)
        monkeypatch.setattr(Staging, "put", put)
        first = [generate(f"x{i}", list(range(30 * i, 30 * i + 30))) for i in range(2)]
        rig.play({0: first, 12: [replace(r, max_new_tokens=30) for r in REQUESTS[1:7]]})
    assert not faults
    assert brought
    assert all(brought)


def test_groups_that_preempt_answer_the_same(rigs: list[Rig]) -> None:
    long = [replace(r, max_new_tokens=100) for r in REQUESTS[:8]]
    truth, _ = rigs[0].play({0: long})
    with grouped(rigs, overlap=1, is_captured=True, num_blocks=60) as (rig, _):
        answers, stats = rig.play({0: long})
    assert stats.num_preemptions > 0
    assert tokens(answers) == tokens(truth)
