# SPDX-License-Identifier: Apache-2.0
"""Grammars in the loop: nobody waits for one, and what it forces is not sampled token by token."""

import json
import threading

import pytest
from msgspec.structs import replace

from tests.engine.rig import GREEDY, Answer, Rig, Script, generate
from tests.server.fake_engine import EOS, ByteTokenizer
from tokenlight import wire
from tokenlight.control import Scheduler
from tokenlight.engine.heartbeat import Board
from tokenlight.engine.loop import Loop
from tokenlight.runner import scheduler_config
from tokenlight.text.grammar.matching import Grammars

SCHEMA = {
    "type": "object",
    "properties": {
        "the_first_of_its_names": {"enum": ["some", "thing", "else"]},
        "the_second": {"type": "integer", "minimum": 1, "maximum": 99},
        "the_third": {"type": "string", "maxLength": 12},
    },
    "required": ["the_first_of_its_names", "the_second", "the_third"],
    "additionalProperties": False,
}
FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
RULES = f"start: %json {json.dumps({**SCHEMA, 'x-guidance': FORM})}"


def bound(request_id: str, *, seed: int | None = None, rules: str = RULES) -> wire.Generate:
    sampling = GREEDY if seed is None else wire.SamplingParams(temperature=1.0, seed=seed)
    return generate(
        request_id,
        range(30, 50),
        sampling=replace(sampling, grammar=wire.Grammar(rules)),
        max_new_tokens=200,
        stop_token_ids=(EOS,),
    )


def free(request_id: str, max_new_tokens: int) -> wire.Generate:
    return generate(request_id, range(1, 20), max_new_tokens=max_new_tokens)


@pytest.fixture
def bytes_rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Its grammar is there already: when a request is submitted does not depend on a thread."""
    grammars = Grammars(ByteTokenizer)
    grammars.compile(RULES).result(20)
    monkeypatch.setattr(rig.runner._sampler, "_grammars", grammars)
    return rig


def text_of(answer: Answer) -> str:
    return bytes(answer.token_ids).decode()


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_what_is_forced_costs_no_steps_and_changes_no_token(bytes_rig, monkeypatch, seed):
    asked = {0: [bound("a", seed=seed), free("b", 12)], 9: [bound("c", seed=seed)]}
    jumped, jumping = bytes_rig.play(asked)
    monkeypatch.setattr(bytes_rig.runner, "forced", lambda request_id: [])
    stepped, stepping = bytes_rig.play(asked)
    for name in "abc":
        assert jumped[name] == stepped[name]
        if name != "b":
            written = json.loads(text_of(jumped[name]))
            assert list(written) == SCHEMA["required"]
            assert jumped[name].finish_reason == "stop"
    assert jumping.num_sampled_tokens == stepping.num_sampled_tokens
    assert jumping.num_steps < stepping.num_steps / 2
    assert jumping.num_free_blocks == jumping.num_blocks


def test_a_step_has_room_for_what_many_requests_are_forced_to_say(bytes_rig, monkeypatch):
    """More at once than the model's head has rows for."""
    asked = {0: [*(bound(f"{number}") for number in range(8)), free("free", 60)]}
    jumped, jumping = bytes_rig.play(asked)
    monkeypatch.setattr(bytes_rig.runner, "forced", lambda request_id: [])
    stepped, stepping = bytes_rig.play(asked)
    assert jumped == stepped
    assert all(answer.error is None for answer in jumped.values())
    assert jumping.num_steps < stepping.num_steps


def test_forced_tokens_are_told_their_logprobs(bytes_rig):
    request = bound("a")
    told = replace(request, sampling=replace(request.sampling, num_logprobs=2))
    logprobs = []

    class Listening(Script):
        def send(self, message: wire.FromEngine) -> None:
            for delta in message.deltas:
                assert len(delta.logprobs or ()) == len(delta.token_ids)
                logprobs.extend(delta.logprobs or ())
            super().send(message)

    script = play(bytes_rig, Listening({0: [told]}))
    assert len(logprobs) == len(script.answers["a"].token_ids) > 60


def test_a_jump_ends_at_the_length(bytes_rig):
    answers, stats = bytes_rig.play({0: [replace(bound("a"), max_new_tokens=7)]})
    assert text_of(answers["a"]) == '{"the_f'
    assert answers["a"].finish_reason == "length"
    assert stats.num_free_blocks == stats.num_blocks


def test_requests_go_on_while_a_grammar_is_compiled(rig, monkeypatch):
    may_load = threading.Event()

    def load() -> ByteTokenizer:
        assert may_load.wait(20)
        return ByteTokenizer()

    monkeypatch.setattr(rig.runner._sampler, "_grammars", Grammars(load))

    class Unblocking(Script):
        def send(self, message: wire.FromEngine) -> None:
            super().send(message)
            if self.answers["b"].finish_reason:
                may_load.set()  # only now: had the loop waited, it would wait for ever

    script = play(rig, Unblocking({0: [bound("a"), free("b", 8)]}))
    assert script.answers["b"].finish_reason == "length"
    assert json.loads(text_of(script.answers["a"]))


def test_a_request_that_waits_for_its_grammar_can_be_aborted(rig, monkeypatch):
    may_load = threading.Event()

    def load() -> ByteTokenizer:
        may_load.wait(20)
        return ByteTokenizer()

    monkeypatch.setattr(rig.runner._sampler, "_grammars", Grammars(load))
    script = play(rig, Script({0: [bound("a"), free("b", 8)], 3: [wire.Abort(request_id="a")]}))
    may_load.set()
    assert script.answers["a"].finish_reason == "abort"
    assert script.answers["a"].num_sampled_tokens == 0
    assert script.answers["b"].finish_reason == "length"


def test_a_tokenizer_that_cannot_be_loaded_ends_the_request_alone(rig, monkeypatch):
    def load() -> ByteTokenizer:
        raise ValueError("no such file")

    monkeypatch.setattr(rig.runner._sampler, "_grammars", Grammars(load))
    script = play(rig, Script({0: [bound("a"), free("b", 8)]}))
    assert script.answers["a"].finish_reason == "error"
    assert "no such file" in script.answers["a"].error
    assert script.answers["b"].finish_reason == "length"


def play(rig: Rig, script: Script) -> Script:
    scheduler = Scheduler(scheduler_config(rig.runner.config, hash_key=bytes(16)))
    board = Board(stats=scheduler.stats(), full_step_s=1.0)
    script.loop = Loop(scheduler, rig.runner, script, board, overlap=0)
    script.loop.run()
    return script
