# SPDX-License-Identifier: Apache-2.0
"""Order, deadlines, events, explanations and cache groups, one rule at a time."""

from itertools import pairwise

import numpy as np
import pytest

from tests.control.device import Device, text_alone
from tokenlight.control import (
    CacheGroup,
    CopyPlan,
    EventsLost,
    ForeignGuard,
    Scheduler,
    SchedulerConfig,
    StepAlreadyCommitted,
    StepDropped,
)


def make(num_blocks: int = 16, **changes) -> tuple[Scheduler, Device]:
    sizes = {
        "block_tokens": 4,
        "max_num_requests": 4,
        "max_step_tokens": 16,
        "max_model_tokens": num_blocks * 4,
        "hash_key": b"0123456789abcdef",
        "output_margin_tokens": 4,
    }
    config = SchedulerConfig(num_blocks=num_blocks, **{**sizes, **changes})
    return Scheduler(config), Device(config, num_blocks)


def ids(*tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def step(scheduler: Scheduler, device: Device, now_us: int = 0):
    plan = scheduler.plan(now_us)
    return plan, scheduler.commit(plan.guard, device.execute(plan))


def finish(scheduler: Scheduler, device: Device) -> None:
    while plan := scheduler.plan(0):
        scheduler.commit(plan.guard, device.execute(plan))


def test_first_come_first_served_within_priority():
    scheduler, device = make(max_num_requests=1)
    for i, priority in enumerate([0, 1, 0, -1]):
        scheduler.submit(i, ids(i, i), max_new_tokens=1, priority=priority)
    order = []
    while plan := scheduler.plan(0):
        order += plan.request_ids.tolist()
        scheduler.commit(plan.guard, device.execute(plan))
    assert order == [3, 0, 2, 1]


def test_the_first_of_the_queue_is_not_passed():
    scheduler, device = make(num_blocks=8)
    scheduler.submit(1, ids(*[1] * 16), max_new_tokens=4)
    step(scheduler, device)
    scheduler.submit(2, ids(*[2] * 16), max_new_tokens=4)
    scheduler.submit(3, ids(3), max_new_tokens=1)
    plan, _ = step(scheduler, device)
    assert plan.request_ids.tolist() == [1]
    finish(scheduler, device)
    assert scheduler.stats().num_waiting == 0


def test_a_blocked_prompt_enters_once_another_has_computed_what_it_lacks():
    scheduler, device = make(num_blocks=9, max_step_tokens=8, output_margin_tokens=0)
    scheduler.submit(1, ids(*[1] * 16), max_new_tokens=16)
    step(scheduler, device)
    scheduler.submit(2, ids(*[1] * 16, 2, 2), max_new_tokens=2)
    assert step(scheduler, device)[0].request_ids.tolist() == [1]
    assert step(scheduler, device)[0].request_ids.tolist() == [1, 2]
    assert scheduler.explain(2).num_cached_tokens == 16
    finish(scheduler, device)


def test_preempts_the_newest():
    scheduler, device = make(num_blocks=6, output_margin_tokens=0)
    for i in range(3):
        scheduler.submit(i, ids(i, i, i, i), max_new_tokens=14)
    while scheduler.stats().num_preemptions == 0:
        step(scheduler, device)
    assert [scheduler.explain(i).num_preemptions for i in range(3)] == [0, 0, 1]
    finish(scheduler, device)


def test_a_deadline_ends_a_request_wherever_it_is():
    scheduler, device = make(max_num_requests=1)
    scheduler.submit(1, ids(1, 2), max_new_tokens=9, deadline_us=50)
    scheduler.submit(2, ids(1, 2), max_new_tokens=9, deadline_us=60)
    scheduler.submit(3, ids(1, 2), max_new_tokens=2, deadline_us=10**9)
    _, (first,) = step(scheduler, device, 49)
    assert first.finish_reason is None
    _, deltas = step(scheduler, device, 60)
    told = [(d.id, d.token_ids, d.finish_reason, d.num_sampled_tokens) for d in deltas[:2]]
    assert told == [(1, [], "deadline", 1), (2, [], "deadline", 0)]
    finish(scheduler, device)
    assert scheduler.stats().num_free_blocks == 16


def test_a_deadline_without_a_step_is_told_when_asked():
    scheduler, _ = make()
    scheduler.submit(1, ids(1, 2), max_new_tokens=9, deadline_us=50)
    assert scheduler.plan(50) is None
    (delta,) = scheduler.take_deltas()
    assert (delta.id, delta.finish_reason) == (1, "deadline")
    assert scheduler.take_deltas() == []


def test_events_tell_the_cache_without_gaps():
    """Who replays the events knows which keys are cached; who is too late is told so."""
    scheduler, device = make(num_blocks=6, max_events=8)
    known: dict[bytes, int] = {}
    sequence = 0
    for i in range(6):
        scheduler.submit(i, ids(*[i] * 13), max_new_tokens=1)
        finish(scheduler, device)
        for event in scheduler.events(sequence):
            assert event.sequence == sequence
            sequence += 1
            if event.kind == "stored":
                assert event.key not in known
                known[event.key] = event.block
            else:
                assert known.pop(event.key) == event.block
        assert len(known) == scheduler.stats().num_cached_blocks
    assert scheduler.events(sequence) == []
    with pytest.raises(EventsLost, match="no longer kept"):
        scheduler.events(0)


def test_events_chain_keys_to_their_parents():
    scheduler, device = make(max_events=8)
    scheduler.submit(1, ids(*range(13)), max_new_tokens=1)
    finish(scheduler, device)
    first, second, third = scheduler.events(0)
    assert (second.parent, third.parent) == (first.key, second.key)


def test_parts_of_blocks_are_copied_where_that_is_asked_for():
    scheduler, device = make(min_copy_tokens=2)
    scheduler.submit(1, ids(1, 2, 3, 4, 5, 6, 7, 8), max_new_tokens=1)
    finish(scheduler, device)
    scheduler.submit(2, ids(1, 2, 3, 4, 5, 6, 7, 9, 9), max_new_tokens=3)
    plan = scheduler.plan(0)
    assert plan.copies[:, 2].tolist() == [3]
    assert plan.token_ids.tolist() == [9, 9]
    text = []
    while plan:
        text += scheduler.commit(plan.guard, device.execute(plan))[0].token_ids
        plan = scheduler.plan(0)
    assert text == text_alone([1, 2, 3, 4, 5, 6, 7, 9, 9], 3)


def test_another_tenants_block_is_never_copied():
    scheduler, device = make(min_copy_tokens=1)
    scheduler.submit(1, ids(1, 2, 3, 4), max_new_tokens=1, cache_salt=b"a")
    finish(scheduler, device)
    scheduler.submit(2, ids(1, 2, 3, 9), max_new_tokens=1, cache_salt=b"b")
    plan = scheduler.plan(0)
    assert plan.copies.shape == (0, 3)
    assert plan.num_tokens == 4
    scheduler.commit(plan.guard, device.execute(plan))


def test_a_window_holds_no_more_than_its_window():
    window = CacheGroup("sliding_window", num_blocks=8, window_tokens=5)
    scheduler, device = make(num_blocks=40, more_groups=[window], max_step_tokens=8)
    scheduler.submit(1, ids(*range(40)), max_new_tokens=60)
    blocks = set()
    while plan := scheduler.plan(0):
        first, last = max(0, int(plan.kv_lens[0]) - 5) // 4, (int(plan.kv_lens[0]) - 1) // 4
        blocks |= set(plan.group_table(1)[0, first : last + 1].tolist())
        scheduler.commit(plan.guard, device.execute(plan))
    assert blocks <= set(range(8))


@pytest.mark.parametrize(("num_prompt", "chunks"), [(13, [12, 1]), (12, [12]), (3, [3])])
def test_a_recurrent_prompt_is_cut_where_its_state_can_be_kept(num_prompt, chunks):
    state = CacheGroup("recurrent", num_blocks=4)
    scheduler, device = make(more_groups=[state])
    scheduler.submit(1, ids(*range(num_prompt)), max_new_tokens=1)
    sizes, states = [], []
    while plan := scheduler.plan(0):
        sizes.append(plan.num_tokens)
        states += plan.state_blocks[:, 0].tolist()
        scheduler.commit(plan.guard, device.execute(plan))
    assert sizes == chunks
    assert states[0][0] == -1
    for (_, written), (read, _) in pairwise(states):
        assert read == written


def test_copy_guards_are_held_to_the_same_rules():
    scheduler, device = make(num_host_blocks=4)
    other, _ = make(num_host_blocks=4)
    scheduler.submit(1, ids(*range(9)), max_new_tokens=1)
    finish(scheduler, device)
    copy = scheduler.plan_copies()
    assert isinstance(copy, CopyPlan)
    assert copy.rows[:, 0].tolist() == [1, 1]
    with pytest.raises(ForeignGuard):
        other.commit_copy(copy.guard, has_succeeded=True)
    scheduler.commit_copy(copy.guard, has_succeeded=True)
    with pytest.raises(StepAlreadyCommitted):
        scheduler.commit_copy(copy.guard, has_succeeded=True)
    scheduler.submit(2, ids(*range(20, 29)), max_new_tokens=1)
    finish(scheduler, device)
    copy = scheduler.plan_copies()
    del copy
    with pytest.raises(StepDropped):
        scheduler.plan(0)


def test_a_draft_that_found_no_room_is_not_added_to_the_next_ones():
    """Who proposes for a step, within what the model takes, counts on none being left over."""
    scheduler, device = make(num_blocks=5, num_host_blocks=4, output_margin_tokens=0)
    scheduler.submit(1, ids(*range(9)), max_new_tokens=1)
    finish(scheduler, device)
    copy = scheduler.plan_copies()  # holds its blocks until it is done
    for i in (2, 3):
        scheduler.submit(i, ids(i, i, i), max_new_tokens=12)
    step(scheduler, device)
    for i in (2, 3):
        scheduler.propose(i, ids(7, 7))
    plan = scheduler.plan(0)
    assert plan.request_ids.tolist() == [2]
    scheduler.commit(plan.guard, device.execute(plan), ids(1))
    scheduler.commit_copy(copy.guard, has_succeeded=True)
    scheduler.propose(2, ids(7, 7, 7, 7))
    plan = scheduler.plan(0)
    assert plan.sampled_requests.tolist() == [0, 0, 0, 0, 0, 1]
    scheduler.commit(plan.guard, device.execute(plan), ids(1, 1))
    finish(scheduler, device)


@pytest.mark.parametrize("drafts", [(), (7, 7)], ids=["a token", "drafts"])
def test_a_draft_that_comes_while_a_step_samples_is_ignored(drafts):
    """It would be judged a step later, in another place, beside what is proposed for that step."""
    scheduler, device = make(overlap=1)
    scheduler.submit(1, ids(1, 2, 3), max_new_tokens=12)
    step(scheduler, device)
    scheduler.propose(1, ids(*drafts))
    plan = scheduler.plan(0)
    assert plan.sampled_requests.tolist() == [0] * (1 + len(drafts))
    scheduler.propose(1, ids(7, 7, 7))
    scheduler.commit(plan.guard, device.execute(plan), ids(1))
    plan, _ = step(scheduler, device)
    assert plan.sampled_requests.tolist() == [0]
    finish(scheduler, device)


def test_counts_of_a_run():
    scheduler, device = make()
    scheduler.submit(1, ids(*range(9)), max_new_tokens=3)
    finish(scheduler, device)
    scheduler.submit(2, ids(*range(9)), max_new_tokens=2)
    finish(scheduler, device)
    stats = scheduler.stats()
    assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (18, 8)
    assert (stats.num_sampled_tokens, stats.num_steps) == (5, 5)
    assert (stats.num_blocks, stats.num_preemptions) == (16, 0)
