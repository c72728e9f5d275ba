# SPDX-License-Identifier: Apache-2.0
"""What is done wrong from Python is a typed error, raised before anything changed; no crash."""

import gc
from array import array
from threading import Thread

import numpy as np
import pytest

from tests.control.device import Device, text_alone
from tokenlight import control
from tokenlight.base.errors import ConfigError, ContextTooLong, InvalidRequest


def config(**changes) -> control.SchedulerConfig:
    sizes = {
        "num_blocks": 8,
        "block_tokens": 4,
        "max_num_requests": 2,
        "max_step_tokens": 8,
        "max_model_tokens": 32,
        "hash_key": b"0123456789abcdef",
    }
    return control.SchedulerConfig(**{**sizes, **changes})


def ids(*tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


@pytest.fixture
def scheduler():
    made = control.Scheduler(config())
    made.submit(1, ids(1, 2, 3), max_new_tokens=4)
    return made


def test_double_commit(scheduler):
    plan = scheduler.plan(0)
    scheduler.commit(plan.guard, ids(5))
    with pytest.raises(control.StepAlreadyCommitted):
        scheduler.commit(plan.guard, ids(5))
    assert scheduler.plan(0) is not None


def test_foreign_guard(scheduler):
    other = control.Scheduler(config())
    other.submit(1, ids(1), max_new_tokens=4)
    plan, foreign = scheduler.plan(0), other.plan(0)
    with pytest.raises(control.ForeignGuard):
        scheduler.commit(foreign.guard, ids(5))
    assert scheduler.commit(plan.guard, ids(5))[0].token_ids == [5]
    assert other.commit(foreign.guard, ids(6))[0].token_ids == [6]


def test_dropped_plan_stops_the_scheduler(scheduler):
    plan = scheduler.plan(0)
    del plan
    gc.collect()
    with pytest.raises(control.StepDropped, match="dropped before it was committed"):
        scheduler.plan(0)
    with pytest.raises(control.StepDropped):
        scheduler.submit(2, ids(1), max_new_tokens=1)
    assert scheduler.stats().num_running == 1


def test_guard_outlives_plan_and_scheduler(scheduler):
    guard = scheduler.plan(0).guard
    assert guard.step == 0
    del scheduler
    gc.collect()
    assert guard.step == 0


def test_views_outlive_plan_and_scheduler(scheduler):
    plan = scheduler.plan(0)
    token_ids, table = plan.token_ids, plan.block_table
    scheduler.commit(plan.guard, ids(9))
    del plan
    for _ in range(3):
        plan = scheduler.plan(0)
        scheduler.commit(plan.guard, ids(9))
    del plan, scheduler
    gc.collect()
    assert token_ids.tolist() == [1, 2, 3]
    assert table.shape == (2, 8)


def test_views_are_read_only(scheduler):
    plan = scheduler.plan(0)
    with pytest.raises(ValueError, match="read-only"):
        plan.block_table[0, 0] = 7
    scheduler.commit(plan.guard, ids(9))


def test_second_thread(scheduler):
    caught = []

    def use():
        calls = (scheduler.stats, lambda: scheduler.plan(0), lambda: scheduler.abort(1))
        for call in calls:
            try:
                call()
            except control.WrongThread as error:
                caught.append(error.code)

    thread = Thread(target=use)
    thread.start()
    thread.join()
    assert caught == ["control_wrong_thread"] * 3
    assert scheduler.stats().num_waiting == 1


def test_planning_past_the_overlap(scheduler):
    plan = scheduler.plan(0)
    with pytest.raises(control.TooManySteps, match="commit the oldest first"):
        scheduler.plan(0)
    scheduler.commit(plan.guard, ids(5))


def test_commit_out_of_order():
    scheduler = control.Scheduler(config(overlap=1))
    scheduler.submit(1, ids(1, 2, 3), max_new_tokens=4)
    first, second = scheduler.plan(0), scheduler.plan(0)
    assert second.token_ids.tolist() == [-1]
    with pytest.raises(control.StepOutOfOrder):
        scheduler.commit(second.guard, ids(5))
    scheduler.commit(first.guard, ids(5))
    scheduler.commit(second.guard, ids(6))


@pytest.mark.parametrize("sampled", [(), (1, 2)])
def test_result_of_the_wrong_size(scheduler, sampled):
    plan = scheduler.plan(0)
    with pytest.raises(control.MalformedResult):
        scheduler.commit(plan.guard, ids(*sampled))
    scheduler.commit(plan.guard, ids(5))


@pytest.mark.parametrize("accepted", [(0,), (4,), (2, 1), (-1,)])
def test_accepting_what_was_not_sampled(scheduler, accepted):
    plan = scheduler.plan(0)
    scheduler.commit(plan.guard, ids(5))
    scheduler.propose(1, ids(6, 7))
    plan = scheduler.plan(0)
    with pytest.raises(control.MalformedResult):
        scheduler.commit(plan.guard, ids(6, 7, 8), ids(*accepted))
    (delta,) = scheduler.commit(plan.guard, ids(6, 7, 8), ids(3))
    assert delta.token_ids == [6, 7, 8]


def test_a_rejected_draft_cannot_be_accepted(scheduler):
    plan = scheduler.plan(0)
    scheduler.commit(plan.guard, ids(5))
    scheduler.propose(1, ids(6, 7))
    plan = scheduler.plan(0)
    with pytest.raises(control.MalformedResult, match="KV would be wrong"):
        scheduler.commit(plan.guard, ids(6, 9, 8), ids(3))
    (delta,) = scheduler.commit(plan.guard, ids(6, 9, 8), ids(2))
    assert delta.token_ids == [6, 9]


def test_duplicate_request(scheduler):
    with pytest.raises(control.DuplicateRequest):
        scheduler.submit(1, ids(1), max_new_tokens=1)


def test_requests_that_cannot_be_served(scheduler):
    with pytest.raises(InvalidRequest, match="no tokens"):
        scheduler.submit(2, ids(), max_new_tokens=1)
    with pytest.raises(InvalidRequest, match="at least 1"):
        scheduler.submit(2, ids(1), max_new_tokens=0)
    with pytest.raises(ContextTooLong, match="32 tokens"):
        scheduler.submit(2, np.zeros(32, np.int32), max_new_tokens=1)
    with pytest.raises(InvalidRequest, match="lower max_new_tokens"):
        scheduler.submit(2, ids(1, 2), max_new_tokens=31)
    scheduler.submit(2, ids(1, 2), max_new_tokens=30)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hash_key": b"short"}, "16 bytes"),
        ({"block_tokens": 0}, "block_tokens must be at least 1"),
        ({"max_step_tokens": 1}, "max_step_tokens must be at least 2"),
        ({"overlap": -1}, "overlap"),
        (
            {"more_groups": [control.CacheGroup("sliding_window", num_blocks=1, window_tokens=8)]},
            "may hold",
        ),
    ],
)
def test_configs_that_cannot_work(changes, words):
    with pytest.raises(ConfigError, match=words):
        config(**changes)


def test_abort_knows_what_it_ends(scheduler):
    assert not scheduler.abort(99)
    assert scheduler.abort(1)
    assert not scheduler.abort(1)
    assert scheduler.plan(0) is None
    assert scheduler.stats().num_free_blocks == 8


def test_abort_while_its_step_runs_keeps_the_blocks_until_it_is_back(scheduler):
    plan = scheduler.plan(0)
    scheduler.abort(1)
    assert scheduler.stats().num_free_blocks == 7
    assert scheduler.commit(plan.guard, ids(5)) == []
    assert scheduler.stats().num_free_blocks == 8


def test_prompts_come_as_any_int32_buffer():
    made = control.Scheduler(config())
    made.submit(1, array("i", [1, 2, 3]), max_new_tokens=2, stop_token_ids=array("i", []))
    device = Device(config(), 8)
    text = []
    while plan := made.plan(0):
        for delta in made.commit(plan.guard, device.execute(plan)):
            text += delta.token_ids
    assert text == text_alone([1, 2, 3], 2)
    with pytest.raises(TypeError):
        made.submit(2, np.array([1.5]), max_new_tokens=1)
