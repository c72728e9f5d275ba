# SPDX-License-Identifier: Apache-2.0
"""Scheduling never changes a text: batched, chunked, cached, preempted, ahead, speculated."""

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.device import Device, text_alone
from tokenlight.control import Scheduler, SchedulerConfig

KEY = bytes(range(16))


def make(num_blocks=24, **changes) -> tuple[Scheduler, Device]:
    sizes = {"block_tokens": 4, "max_num_requests": 4, "max_step_tokens": 12}
    config = SchedulerConfig(
        num_blocks=num_blocks,
        max_model_tokens=num_blocks * 4,
        hash_key=KEY,
        **{**sizes, "output_margin_tokens": 4, **changes},
    )
    return Scheduler(config), Device(config, num_blocks)


def ids(tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def judge(plan, sampled: np.ndarray) -> np.ndarray:
    """How many of each row's ids stand: drafts, as long as they are what was sampled."""
    rows = list(plan.sampled_requests)
    accepted = []
    for r in sorted(set(rows)):
        first = rows.index(r)
        count = rows.count(r)
        end = int(plan.query_starts[r + 1])
        drafts = plan.token_ids[end - count + 1 : end]
        num = 1
        while num < count and drafts[num - 1] == sampled[first + num - 1]:
            num += 1
        accepted.append(num)
    return ids(accepted)


def drive(scheduler: Scheduler, device: Device, *, depth: int = 0, propose=None) -> dict[int, list]:
    """Run to the end, `depth` steps ahead; tokens and finish reason of each request."""
    texts: dict[int, list] = {}
    in_flight: deque = deque()
    for _ in range(10_000):
        if propose is not None:
            propose(scheduler, texts)
        plan = scheduler.plan(0)
        if plan is not None:
            assert plan.num_tokens <= device.config.max_step_tokens
            in_flight.append(plan)
        if not in_flight:
            return texts
        if len(in_flight) > depth or plan is None:
            done = in_flight.popleft()
            sampled = device.execute(done)
            for delta in scheduler.commit(done.guard, sampled, judge(done, sampled)):
                texts.setdefault(delta.id, [[], None])
                texts[delta.id][0] += delta.token_ids
                assert texts[delta.id][1] is None
                texts[delta.id][1] = delta.finish_reason
    raise AssertionError("the scheduler does not come to an end")


prompts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(
    prompts,
    st.integers(13, 40),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
)
def test_text_is_as_alone(requests, num_blocks, depth, reuse, min_copy):
    scheduler, device = make(
        num_blocks, overlap=depth, prefix_reuse=reuse, min_copy_tokens=min_copy
    )
    expected = {}
    for i, (family, num_prompt, num_output) in enumerate(requests):
        prompt = [family] * num_prompt + [i % 3]
        scheduler.submit(i, ids(prompt), max_new_tokens=num_output)
        expected[i] = text_alone(prompt, num_output)
    texts = drive(scheduler, device, depth=depth)
    assert {i: text for i, (text, _) in texts.items()} == expected
    assert {reason for _, reason in texts.values()} == {"length"}
    assert scheduler.stats().num_free_blocks == num_blocks


@settings(max_examples=40, deadline=None)
@given(prompts, st.integers(14, 40), st.integers(1, 4), st.integers(0, 1), st.randoms())
def test_speculation_never_changes_a_text(requests, num_blocks, num_drafts, depth, random):
    scheduler, device = make(num_blocks, overlap=depth)
    expected = {}
    for i, (family, num_prompt, num_output) in enumerate(requests):
        prompt = [family] * num_prompt
        scheduler.submit(i, ids(prompt), max_new_tokens=num_output)
        expected[i] = text_alone(prompt, num_output)

    def propose(scheduler, texts):
        for i, (text, _) in texts.items():
            right = expected[i][len(text) : len(text) + num_drafts]
            scheduler.propose(i, ids([t if random.random() < 0.7 else 0 for t in right]))

    texts = drive(scheduler, device, depth=depth, propose=propose)
    assert {i: text for i, (text, _) in texts.items()} == expected
    # What speculation left in the cache serves later prompts as if it had never been (T-D4).
    for i, text in expected.items():
        family, num_prompt, _ = requests[i]
        prompt = [family] * num_prompt + text
        scheduler.submit(i, ids(prompt[: num_blocks * 4 - 8]), max_new_tokens=4)
    again = drive(scheduler, device, depth=depth)
    for i, text in expected.items():
        family, num_prompt, _ = requests[i]
        prompt = ([family] * num_prompt + text)[: num_blocks * 4 - 8]
        assert again[i][0] == text_alone(prompt, 4)


def test_stop_token_ends_and_is_not_delivered():
    scheduler, device = make()
    text = text_alone([1, 2, 3], 10)
    scheduler.submit(7, ids([1, 2, 3]), max_new_tokens=10, stop_token_ids=ids([text[4]]))
    deltas = []
    while plan := scheduler.plan(0):
        deltas += scheduler.commit(plan.guard, device.execute(plan))
    assert [token for d in deltas for token in d.token_ids] == text[:4]
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].num_sampled_tokens == 5
    assert [b.num_sampled_tokens - a.num_sampled_tokens for a, b in pairwise(deltas)] == [1] * 4


def test_stop_token_among_accepted_drafts_cuts_the_rest():
    scheduler, device = make()
    text = text_alone([5, 6], 12)
    scheduler.submit(1, ids([5, 6]), max_new_tokens=12, stop_token_ids=ids([text[3]]))
    plan = scheduler.plan(0)
    scheduler.commit(plan.guard, device.execute(plan))
    scheduler.propose(1, ids(text[1:5]))
    plan = scheduler.plan(0)
    sampled = device.execute(plan)
    assert plan.num_sampled == 5
    (delta,) = scheduler.commit(plan.guard, sampled, ids([5]))
    assert (delta.token_ids, delta.finish_reason) == (text[1:3], "stop")
    assert scheduler.stats().num_free_blocks == 24


def test_decodes_come_first_and_prefill_fills_the_rest():
    scheduler, device = make()
    scheduler.submit(1, ids([1] * 3), max_new_tokens=8)
    plan = scheduler.plan(0)
    scheduler.commit(plan.guard, device.execute(plan))
    scheduler.submit(2, ids([2] * 30), max_new_tokens=2)
    plan = scheduler.plan(0)
    assert plan.request_ids.tolist() == [1, 2]
    assert np.diff(plan.query_starts).tolist() == [1, 11]
    assert plan.sampled_requests.tolist() == [0]
    scheduler.commit(plan.guard, device.execute(plan))


@pytest.mark.parametrize("reuse", [True, False])
def test_generated_tokens_are_reused_by_the_next_turn(reuse):
    scheduler, device = make(prefix_reuse=reuse, max_step_tokens=32)
    prompt = [3] * 9
    scheduler.submit(1, ids(prompt), max_new_tokens=12)
    text = drive(scheduler, device)[1][0]
    turn = prompt + text + [4, 4, 4]
    scheduler.submit(2, ids(turn), max_new_tokens=2)
    plan = scheduler.plan(0)
    (delta,) = scheduler.commit(plan.guard, device.execute(plan))
    # The last sampled token was never fed back, so its block is not cached.
    assert delta.num_cached_tokens == (20 if reuse else 0)
    assert plan.num_tokens == (4 if reuse else 24)
