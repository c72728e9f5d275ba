# SPDX-License-Identifier: Apache-2.0
"""Scheduling never changes tokens: float32, greedy and seeded, however a request was run."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.rig import BLOCK_TOKENS, GREEDY, Answer, Rig, generate
from tokenlight import wire

NUM_REQUESTS = 32
SAMPLED = wire.SamplingParams(temperature=0.9, top_k=50, top_p=0.95, min_p=0.01)

SHAPED = replace(
    SAMPLED,
    repetition_penalty=1.3,
    frequency_penalty=0.2,
    presence_penalty=0.4,
    logit_bias={5: 3.0},
    min_tokens=8,
)


def make_requests(seed: int) -> list[wire.Generate]:
    """Prompts of 1 to 70 tokens, half of them with a shared prefix; greedy and sampled in turn."""
    rng = random.Random(seed)
    shared = [rng.randrange(300) for _ in range(24)]
    requests = []
    for index in range(NUM_REQUESTS):
        own = [rng.randrange(300) for _ in range(rng.randrange(1, 46))]
        sampling = replace((GREEDY, SAMPLED, GREEDY, SHAPED)[index % 4], seed=index)
        requests.append(
            generate(
                f"r{index}",
                shared + own if index % 4 < 2 else own,
                sampling=sampling,
                max_new_tokens=rng.randrange(1, 40),
            )
        )
    return requests


REQUESTS = make_requests(seed=1)


@pytest.fixture(scope="module")
def alone(rig: Rig) -> dict[str, Answer]:
    """Each request on an engine of its own: the truth of this file."""
    return {r.request_id: rig.play({0: [r]})[0][r.request_id] for r in REQUESTS}


def tokens(answers: dict[str, Answer]) -> dict[str, tuple[list[int], str | None]]:
    return {name: (answer.token_ids, answer.finish_reason) for name, answer in answers.items()}


def test_the_model_says_something(alone):
    """Else the tests below would hold for any scheduler."""
    assert len({tuple(a.token_ids[:3]) for a in alone.values()}) > NUM_REQUESTS // 2
    assert len({t for a in alone.values() for t in a.token_ids}) > 50


def test_batched_is_alone(rig, alone):
    answers, stats = rig.play({0: REQUESTS})
    assert tokens(answers) == tokens(alone)
    assert stats.num_steps < sum(a.num_sampled_tokens for a in alone.values()) / 4


def test_joining_one_by_one_is_alone(rig, alone):
    answers, _ = rig.play({2 * index: [r] for index, r in enumerate(REQUESTS)})
    assert tokens(answers) == tokens(alone)


@pytest.mark.parametrize("max_step_tokens", [NUM_REQUESTS, 37, 64, 200])
def test_chunked_is_whole(rig, alone, max_step_tokens):
    answers, _ = rig.play(
        {0: REQUESTS}, max_step_tokens=max_step_tokens, max_num_requests=NUM_REQUESTS
    )
    assert tokens(answers) == tokens(alone)


def test_warm_is_cold(rig, alone):
    again = [replace(r, request_id=r.request_id + "-again") for r in REQUESTS]
    answers, _ = rig.play({0: REQUESTS, 10_000: again})
    assert {name: tokens(answers)[name + "-again"] for name in alone} == tokens(alone)
    for request in REQUESTS:
        num_prompt_tokens = len(request.prompt_token_ids) // 4
        cached = answers[request.request_id + "-again"].num_cached_tokens
        assert cached == (num_prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_without_reuse_is_with_reuse(rig, alone):
    answers, stats = rig.play({0: REQUESTS, 10_000: []}, prefix_reuse=False)
    assert tokens(answers) == tokens(alone)
    assert stats.num_cached_tokens == 0


def test_preempted_is_undisturbed(rig):
    """Long answers in small memory: admission reserves for their start only, so some must yield."""
    long = [replace(r, max_new_tokens=150) for r in REQUESTS[:12]]
    alone = {r.request_id: rig.play({0: [r]})[0][r.request_id] for r in long}
    answers, stats = rig.play({0: long}, num_blocks=600 // BLOCK_TOKENS)
    assert stats.num_preemptions > 0
    assert tokens(answers) == tokens(alone)
    assert stats.num_free_blocks == stats.num_blocks


def test_a_continued_conversation_reuses_the_answer(rig):
    """Generated tokens are published as well: the next turn computes what it adds, no more."""
    first = generate("a", list(range(20)), max_new_tokens=21)
    answer = rig.play({0: [first]})[0]["a"].token_ids
    history = [*range(20), *answer]
    second = generate("b", [*history, 7, 8, 9], max_new_tokens=5)
    warm, _ = rig.play({0: [first], 1000: [second]})
    cold, _ = rig.play({0: [second]})
    assert warm["b"].token_ids == cold["b"].token_ids
    # The last sampled token was never computed, so its block is not there.
    assert warm["b"].num_cached_tokens == (len(history) - 1) // BLOCK_TOKENS * BLOCK_TOKENS


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_any_schedule_is_alone(rig, alone, seed):
    """Random arrivals, aborts, budgets and memory; whoever finishes has what he has alone."""
    rng = random.Random(seed)
    arrivals: dict[int, list[wire.ToEngine]] = {}
    for request in REQUESTS:
        step = rng.randrange(40)
        arrivals.setdefault(step, []).append(request)
        if rng.random() < 0.3:
            leaves = step + rng.randrange(30)
            arrivals.setdefault(leaves, []).append(wire.Abort(request_id=request.request_id))
    num_blocks = rng.randrange(30, 200)
    answers, stats = rig.play(
        arrivals,
        num_blocks=num_blocks,
        max_step_tokens=rng.choice([16, 33, 100]),
        max_num_requests=rng.choice([3, 16]),
        prefix_reuse=rng.random() < 0.8,
    )
    for name, answer in answers.items():
        full = alone[name]
        if answer.finish_reason == "abort":
            assert answer.token_ids == full.token_ids[: len(answer.token_ids)]
        else:
            assert (answer.token_ids, answer.finish_reason) == (full.token_ids, full.finish_reason)
    assert stats.num_free_blocks == num_blocks
    assert stats.num_running == stats.num_waiting == 0


def test_stop_tokens_end_a_request_and_are_not_delivered(rig, alone):
    full = alone["r0"].token_ids
    stop = full[len(full) // 2]
    request = replace(REQUESTS[0], stop_token_ids=(stop, 511))
    answer = rig.play({0: [request]})[0]["r0"]
    before = full[: full.index(stop)]
    assert (answer.token_ids, answer.finish_reason) == (before, "stop")
    assert answer.num_sampled_tokens == len(before) + 1
