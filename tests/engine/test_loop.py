# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a step ends the requests that it touched, and gives their memory back."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from torch import Tensor

from tests.engine.rig import Rig, Script, generate
from tokenlight import wire
from tokenlight.engine.heartbeat import Board
from tokenlight.engine.loop import Loop
from tokenlight.runner import Done, Sampled

A = generate("a", range(1, 20), max_new_tokens=12)
B = generate("b", range(50, 90), max_new_tokens=12)
C = generate("c", range(30, 40), max_new_tokens=12)


class Breaking:
    """A model whose forward is disturbed; everything behind it is real."""

    def __init__(self, model: Callable[..., Tensor]) -> None:
        self._model = model
        self.num_calls = 0
        self.disturb: Callable[[int, Tensor], None] = lambda call, logits_SV: None

    def __call__(self, step: object) -> Tensor:
        self.num_calls += 1
        logits_SV = self._model(step)
        self.disturb(self.num_calls, logits_SV)
        return logits_SV


@pytest.fixture
def model(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Breaking:
    breaking = Breaking(rig.runner._model)
    monkeypatch.setattr(rig.runner, "_model", breaking)
    return breaking


@pytest.fixture
def alone(rig: Rig) -> dict[str, list[int]]:
    return {r.request_id: rig.play({0: [r]})[0][r.request_id].token_ids for r in (A, B, C)}


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_ends_its_request_alone(rig, model, alone, poison):
    model.num_calls = 0

    def disturb(call: int, logits_SV: Tensor) -> None:
        if call == 5:
            logits_SV[1, 77] = poison

    model.disturb = disturb
    answers, stats = rig.play({0: [A, B, C]})
    assert (answers["b"].finish_reason, answers["b"].token_ids) == ("error", alone["b"][:4])
    assert "not finite" in answers["b"].error
    assert (answers["a"].token_ids, answers["c"].token_ids) == (alone["a"], alone["c"])
    assert stats.num_free_blocks == stats.num_blocks


def test_a_step_that_raises_ends_its_requests_and_the_loop_goes_on(rig, model, alone, caplog):
    model.num_calls = 0

    def disturb(call: int, logits_SV: Tensor) -> None:
        if call == 3:
            raise RuntimeError("the kernel broke")

    model.disturb = disturb
    answers, stats = rig.play({0: [A, B], 10: [C]})
    for name in "ab":
        assert answers[name].finish_reason == "error"
        assert "RuntimeError: the kernel broke" in answers[name].error
        assert answers[name].token_ids == alone[name][:2]
    assert answers["c"].token_ids == alone["c"]
    assert stats.num_free_blocks == stats.num_blocks
    assert "step_failed" in caplog.text


def test_what_a_broken_step_wrote_is_never_reused(rig, model, alone):
    """The prompt's blocks were written by a step that raised: the same prompt is computed again."""
    model.num_calls = 0

    def disturb(call: int, logits_SV: Tensor) -> None:
        if call == 1:
            raise RuntimeError("the kernel broke")

    model.disturb = disturb
    again = generate("again", range(50, 90), max_new_tokens=12)
    answers, _ = rig.play({0: [B], 10: [again]})
    assert answers["b"].finish_reason == "error"
    assert (answers["again"].num_cached_tokens, answers["again"].token_ids) == (0, alone["b"])


def test_step_after_step_failing_ends_the_loop(rig, model):
    def disturb(call: int, logits_SV: Tensor) -> None:
        raise RuntimeError("broken for good")

    model.disturb = disturb
    with pytest.raises(RuntimeError, match="broken for good"):
        rig.play({0: [A], 10: [B], 20: [C], 30: []})


def test_a_good_step_between_forgives(rig, model):
    model.num_calls = 0

    def disturb(call: int, logits_SV: Tensor) -> None:
        if call % 2:
            raise RuntimeError("now and then")

    model.disturb = disturb
    once = {f"r{i}": generate(f"r{i}", [i + 1, 5], max_new_tokens=1) for i in range(8)}
    answers, _ = rig.play({10 * i: [r] for i, r in enumerate(once.values())})
    assert [a.finish_reason for a in answers.values()] == ["error", "length"] * 4


def test_a_request_that_the_scheduler_refuses_ends_alone(rig, alone):
    too_long = generate("long", [1] * 5000)
    answers, _ = rig.play({0: [A, too_long, B]})
    assert answers["long"].finish_reason == "error"
    assert (answers["a"].token_ids, answers["b"].token_ids) == (alone["a"], alone["b"])


def test_a_request_that_the_runner_refuses_ends_alone(rig, alone, monkeypatch):
    add = rig.runner.add

    def refuse_b(number: int, sampling: wire.SamplingParams, *rest: object) -> None:
        add(number, sampling, *rest)
        if sampling.seed == 66:
            raise LookupError("no such rules")

    monkeypatch.setattr(rig.runner, "add", refuse_b)
    bad = replace(B, sampling=wire.SamplingParams(seed=66))
    answers, stats = rig.play({0: [A, bad, C]})
    assert (answers["b"].finish_reason, answers["b"].error) == ("error", "no such rules")
    assert (answers["a"].token_ids, answers["c"].token_ids) == (alone["a"], alone["c"])
    assert stats.num_prompt_tokens == 19 + 10
    assert not rig.runner._sampler._params


def test_a_grammar_that_cannot_be_begun_ends_its_request_alone(rig, alone, monkeypatch):
    def compiling(sampling: wire.SamplingParams) -> None:
        if sampling.seed == 66:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(rig.runner, "compiling", compiling)
    bad = replace(B, sampling=wire.SamplingParams(seed=66))
    half_a_token = replace(C, request_id="half", prompt_token_ids=b"123")
    answers, _ = rig.play({0: [A, bad, half_a_token, C]})
    assert (answers["b"].finish_reason, answers["b"].error) == ("error", "can't start new thread")
    assert answers["half"].finish_reason == "error"
    assert (answers["a"].token_ids, answers["c"].token_ids) == (alone["a"], alone["c"])


def test_an_abort_is_confirmed_once_and_a_late_one_is_harmless(rig, alone):
    abort = wire.Abort(request_id="a")
    answers, stats = rig.play({0: [A, B], 4: [abort], 5: [abort], 900: [abort]})
    assert answers["a"].finish_reason == "abort"
    assert 0 < len(answers["a"].token_ids) < len(alone["a"])
    assert answers["b"].token_ids == alone["b"]
    assert stats.num_free_blocks == stats.num_blocks


def test_an_abort_in_the_same_mail_as_its_request(rig):
    answers, stats = rig.play({0: [A, wire.Abort(request_id="a")]})
    assert (answers["a"].finish_reason, answers["a"].token_ids) == ("abort", [])
    assert stats.num_free_blocks == stats.num_blocks


class Tape:
    """A scheduler and a runner that only write down what they are asked, for four steps."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._num_planned = 0

    def plan(self, now_us: int) -> SimpleNamespace | None:
        if self._num_planned == 4:
            return None
        self._num_planned += 1
        self.calls.append(f"plan {self._num_planned}")
        return SimpleNamespace(
            guard=self._num_planned,
            request_ids=np.zeros(0, np.int64),
            sampled_requests=np.zeros(0, np.int32),
        )

    def launch(self, plan: SimpleNamespace) -> Done:
        self.calls.append(f"launch {plan.guard}")
        return Done(Sampled(np.zeros(0, np.int32), np.zeros(0, np.intp)))

    def commit(self, guard: int, token_ids: np.ndarray, num_accepted: None) -> list[object]:
        self.calls.append(f"commit {guard}")
        return []

    def stats(self) -> None:
        return None


@pytest.mark.parametrize(
    ("overlap", "order"),
    [
        (0, "p1 l1 c1 p2 l2 c2 p3 l3 c3 p4 l4 c4"),
        (1, "p1 l1 p2 l2 c1 p3 l3 c2 p4 l4 c3 c4"),
        (2, "p1 l1 p2 l2 p3 l3 c1 p4 l4 c2 c3 c4"),
    ],
)
def test_overlap_is_a_number(overlap, order):
    tape, script = Tape(), Script({0: []})
    board = Board(stats=None, full_step_s=1.0)
    script.loop = Loop(tape, tape, script, board, overlap=overlap)
    script.loop.run()
    assert " ".join(call[0] + call[-1] for call in tape.calls) == order
