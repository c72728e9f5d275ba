# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks with KV of their own: which a request goes to, and that steps of all are one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.device import digest_after, next_token, text_alone
from tokenlight.control import GroupedScheduler, Scheduler, SchedulerConfig
from tokenlight.control.groups import GroupedPlan, GroupLoad, choose_group

NUM_SLOTS, BLOCK_TOKENS = 3, 4


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def scheduler(num_blocks: int = 24, **changes) -> Scheduler:
    sizes = {
        "block_tokens": BLOCK_TOKENS,
        "max_num_requests": NUM_SLOTS,
        "max_step_tokens": 16,
        "max_model_tokens": num_blocks * BLOCK_TOKENS,
        "hash_key": b"0123456789abcdef",
        "output_margin_tokens": 0,
    }
    return Scheduler(SchedulerConfig(num_blocks=num_blocks, **{**sizes, **changes}))


class Groups:
    """What the ranks of the groups do: each group's KV and block table are its own."""

    def __init__(self, num_groups: int = 2, num_blocks: int = 24, **changes) -> None:
        self.grouped = GroupedScheduler(
            [scheduler(num_blocks, **changes) for _ in range(num_groups)],
            max_num_requests=NUM_SLOTS,
        )
        self.kv = np.full((num_groups, num_blocks, BLOCK_TOKENS), -1, np.int64)
        self.tables = np.zeros((num_groups, NUM_SLOTS, num_blocks), np.int32)
        self.told: dict[int, list[int]] = {}
        self.cached: dict[int, int] = {}
        self.where: dict[int, int] = {}

    def submit(self, id: int, prompt: list[int], max_new_tokens: int = 4) -> None:
        self.grouped.submit(id, ids(*prompt), max_new_tokens=max_new_tokens)
        self.told[id], self.where[id] = [], self.grouped.group_of(id)

    def step(self) -> bool:
        plan = self.grouped.plan(0)
        if plan is None:
            return False
        for delta in self.grouped.commit(plan.guard, self.execute(plan)):
            self.told[delta.id] += delta.token_ids
            self.cached[delta.id] = delta.num_cached_tokens
        return True

    def execute(self, plan: GroupedPlan) -> np.ndarray:
        for _, slot, column, block in plan.patches.tolist():
            self.tables[slot // NUM_SLOTS, slot % NUM_SLOTS, column] = block
        digests = np.zeros(plan.num_tokens, np.int64)
        for r, (name, slot) in enumerate(zip(plan.request_ids, plan.slots, strict=True)):
            group = slot // NUM_SLOTS
            assert group == self.where[name], "a step of a request of another group"
            row = self.tables[group, slot % NUM_SLOTS]
            for t in range(plan.query_starts[r], plan.query_starts[r + 1]):
                position = int(plan.positions[t])
                block, offset = divmod(position - 1, BLOCK_TOKENS)
                before = int(self.kv[group, row[block], offset]) if position else 0
                digests[t] = digest_after(before, int(plan.token_ids[t]), position)
                block, offset = divmod(position, BLOCK_TOKENS)
                self.kv[group, row[block], offset] = digests[t]
            assert plan.kv_lens[r] == position + 1
        assert (np.diff(plan.slots // NUM_SLOTS) >= 0).all(), "groups are not in their order"
        for s, r in enumerate(plan.sampled_requests):
            assert plan.query_starts[r] <= plan.sampled_rows[s] < plan.query_starts[r + 1]
        return ids(*(next_token(int(digests[t])) for t in plan.sampled_rows))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # a beginning that requests share
            st.integers(1, 40),  # its length
            st.integers(1, 12),  # tokens to sample
            st.integers(0, 3),  # steps before the next one comes
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_every_request_gets_the_text_that_it_gets_alone(arrivals, num_groups):
    groups = Groups(num_groups, num_blocks=14)
    prompts = {}
    for id, (beginning, length, num_new, num_steps) in enumerate(arrivals):
        prompts[id] = [beginning] * (length - 1) + [id]
        groups.submit(id, prompts[id], num_new)
        for _ in range(num_steps):
            groups.step()
    while groups.step():
        pass
    for id, (*_, num_new, _) in enumerate(arrivals):
        assert groups.told[id] == text_alone(prompts[id], num_new)
    stats = groups.grouped.stats()
    assert stats.num_running == stats.num_waiting == 0
    assert stats.num_free_blocks == stats.num_blocks == 14 * num_groups


def test_requests_that_are_preempted_go_on_in_their_group():
    groups = Groups(num_blocks=5)
    for id in range(4):
        groups.submit(id, [id] * 6, 12)
    while groups.step():
        pass
    assert groups.grouped.stats().num_preemptions > 0
    assert all(groups.told[id] == text_alone([id] * 6, 12) for id in range(4))


def test_a_next_turn_goes_where_its_kv_is_and_others_are_shared_out():
    groups = Groups()
    first = list(range(20))
    groups.submit(0, first)
    groups.submit(1, [7] * 18)
    assert [groups.where[0], groups.where[1]] == [0, 1]
    while groups.step():
        pass
    groups.submit(2, [7] * 18 + [1, 2, 3])
    groups.submit(3, [*first, *groups.told[0], 9])
    assert [groups.where[2], groups.where[3]] == [1, 0]
    while groups.step():
        pass
    assert groups.cached[2] == 16
    assert groups.cached[3] == 20


@pytest.mark.parametrize(
    ("loads", "group"),
    [
        ([GroupLoad(0, 0, 0), GroupLoad(0, 0, 0)], 0),
        ([GroupLoad(9, 1, 0), GroupLoad(0, 0, 0)], 1),
        ([GroupLoad(9, 1, 8), GroupLoad(0, 0, 0)], 1),
        ([GroupLoad(9, 1, 16), GroupLoad(0, 0, 0)], 0),
        ([GroupLoad(4, 2, 0), GroupLoad(4, 1, 0)], 1),
    ],
    ids=["empty", "least", "small hit", "hit", "fewest"],
)
def test_the_group_with_least_to_do_is_chosen(loads: list[GroupLoad], group: int):
    assert choose_group(loads) == group


def test_what_is_cached_is_told_before_and_is_what_is_served():
    one = scheduler()
    prompt = ids(*range(21))
    assert one.num_cached_tokens(prompt) == 0
    one.submit(1, prompt, max_new_tokens=1, cache_salt=b"mine")
    while plan := one.plan(0):
        one.commit(plan.guard, np.zeros(plan.num_sampled, np.int32))
    assert one.num_cached_tokens(prompt, cache_salt=b"mine") == 20
    assert one.num_cached_tokens(prompt) == 0
    # The last token is computed in any case: its logits are wanted.
    for num_tokens in (20, 17, 16, 4, 1):
        ahead = one.num_cached_tokens(prompt[:num_tokens], cache_salt=b"mine")
        one.submit(2, prompt[:num_tokens], max_new_tokens=1, cache_salt=b"mine")
        plan = one.plan(0)
        (delta,) = one.commit(plan.guard, ids(0))
        assert ahead == delta.num_cached_tokens == (num_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert scheduler(prefix_reuse=False).num_cached_tokens(prompt) == 0


def test_an_aborted_request_is_nobodys_load():
    groups = Groups()
    groups.submit(0, [1] * 30)
    groups.submit(1, [2] * 10)
    assert groups.grouped.abort(0)
    assert not groups.grouped.abort(0)
    groups.submit(2, [3] * 10)
    assert groups.where == {0: 0, 1: 1, 2: 0}


def test_accepted_drafts_reach_the_group_that_they_are_of():
    groups = Groups(num_blocks=16)
    for id in (0, 1):
        groups.submit(id, [id] * 5, 8)
    groups.step()
    after = {id: text_alone([id] * 5, 8) for id in (0, 1)}
    groups.grouped.propose(1, ids(*after[1][1:4]))
    plan = groups.grouped.plan(0)
    sampled = groups.execute(plan)
    for delta in groups.grouped.commit(plan.guard, sampled, ids(1, 4)):
        groups.told[delta.id] += delta.token_ids
    assert groups.told == {0: after[0][:2], 1: after[1][:5]}
