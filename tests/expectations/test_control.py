# SPDX-License-Identifier: Apache-2.0
"""EXPECTATIONS A9 A10 A11 D4 E1 E3 E6 F2 F3 at the level of the control plane."""

import random

import numpy as np
import pytest

from tests.control.device import Device, HostTier, text_alone
from tokenlight.base.errors import ContextTooLong, InvalidRequest
from tokenlight.control import CacheGroup, Scheduler, SchedulerConfig

BLOCK_TOKENS = 4


def make(num_blocks: int = 32, **changes) -> tuple[Scheduler, Device]:
    sizes = {
        "block_tokens": BLOCK_TOKENS,
        "max_num_requests": 4,
        "max_step_tokens": 16,
        "max_model_tokens": num_blocks * BLOCK_TOKENS,
        "hash_key": b"expectations key",
        "output_margin_tokens": 4,
    }
    config = SchedulerConfig(num_blocks=num_blocks, **{**sizes, **changes})
    return Scheduler(config), Device(config, num_blocks)


def ids(tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def run(scheduler: Scheduler, device: Device) -> tuple[dict[int, list[int]], dict[int, int]]:
    """To the end: each request's text, and how many of its tokens were computed."""
    texts: dict[int, list[int]] = {}
    computed: dict[int, int] = {}
    while plan := scheduler.plan(0):
        for request_id, count in zip(plan.request_ids, np.diff(plan.query_starts), strict=True):
            computed[int(request_id)] = computed.get(int(request_id), 0) + int(count)
        for delta in scheduler.commit(plan.guard, device.execute(plan)):
            texts.setdefault(delta.id, []).extend(delta.token_ids)
    return texts, computed


def test_t_a9_an_edit_at_the_end_costs_the_edit_and_snapshots_have_a_cap():
    """One token changed at the end of a long prompt: at most a block and the edit are computed."""
    state = CacheGroup("recurrent", num_blocks=6)
    scheduler, device = make(num_blocks=64, more_groups=[state])
    prompt = list(range(100))
    scheduler.submit(1, ids(prompt), max_new_tokens=1)
    run(scheduler, device)
    edited = [*prompt[:-1], 7]
    scheduler.submit(2, ids(edited), max_new_tokens=1)
    texts, computed = run(scheduler, device)
    assert texts[2] == text_alone(edited, 1)
    assert computed[2] <= BLOCK_TOKENS + 1
    # Twenty conversations later the snapshots still fit their six blocks.
    for i in range(20):
        scheduler.submit(10 + i, ids([i] * 50), max_new_tokens=3)
    while plan := scheduler.plan(0):
        assert plan.state_blocks.max() < 6
        scheduler.commit(plan.guard, device.execute(plan))


@pytest.mark.parametrize("num_prompt", [5, 16, 17, 47, 64, 99])
@pytest.mark.parametrize("hybrid", [False, True])
def test_t_a10_what_is_matched_is_not_computed_again(num_prompt, hybrid):
    groups = [CacheGroup("sliding_window", num_blocks=16, window_tokens=9)] if hybrid else []
    scheduler, device = make(num_blocks=64, more_groups=groups)
    prompt = [t % 7 for t in range(num_prompt)]
    scheduler.submit(1, ids(prompt), max_new_tokens=6)
    first, _ = run(scheduler, device)
    turn = [*prompt, *first[1], 3, 3]
    scheduler.submit(2, ids(turn), max_new_tokens=1)
    _, computed = run(scheduler, device)
    explained = scheduler.explain(2)
    assert computed[2] <= len(turn) - explained.num_cached_tokens + BLOCK_TOKENS
    # All of turn n less one block is reused, and what the matcher knew is what was served.
    assert explained.num_cached_tokens >= len(prompt) + len(first[1]) - 1 - BLOCK_TOKENS
    assert explained.first_divergent_token - explained.num_cached_tokens <= BLOCK_TOKENS


class TestA11:
    """A miss says how much was cached, where the prompt parted, and why."""

    prompt = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)

    def explain(self, scheduler, device, prompt, **how):
        scheduler.submit(99, ids(prompt), max_new_tokens=1, **how)
        run(scheduler, device)
        told = scheduler.explain(99)
        return told.num_cached_tokens, told.first_divergent_token, told.cause

    def test_t_a11_never_seen(self):
        scheduler, device = make()
        scheduler.submit(1, ids(self.prompt), max_new_tokens=1)
        run(scheduler, device)
        changed = [*self.prompt[:6], 0, *self.prompt[7:]]
        assert self.explain(scheduler, device, changed) == (4, 6, "never_seen")

    def test_t_a11_nothing_missed(self):
        scheduler, device = make()
        scheduler.submit(1, ids(self.prompt[:12]), max_new_tokens=2)
        run(scheduler, device)
        assert self.explain(scheduler, device, self.prompt[:12]) == (8, 12, "none")

    def test_t_a11_salt(self):
        scheduler, device = make()
        scheduler.submit(1, ids(self.prompt), max_new_tokens=1, cache_salt=b"a tenant")
        run(scheduler, device)
        told = self.explain(scheduler, device, self.prompt, cache_salt=b"another")
        assert told == (0, 0, "salt")

    def test_t_a11_adapter(self):
        scheduler, device = make()
        scheduler.submit(1, ids(self.prompt), max_new_tokens=1, adapter_id=1)
        run(scheduler, device)
        assert self.explain(scheduler, device, self.prompt, adapter_id=2) == (0, 0, "salt")

    def test_t_a11_evicted(self):
        scheduler, device = make(num_blocks=8)
        scheduler.submit(1, ids(self.prompt), max_new_tokens=1)
        run(scheduler, device)
        scheduler.submit(2, ids([50] * 29), max_new_tokens=1)
        run(scheduler, device)
        cached, divergent, cause = self.explain(scheduler, device, self.prompt)
        assert (cached, cause) == (divergent, "evicted")
        assert cached < 12

    def test_t_a11_reuse_is_off(self):
        scheduler, device = make(prefix_reuse=False)
        assert self.explain(scheduler, device, self.prompt) == (0, 0, "reuse_off")


@pytest.mark.parametrize("seed", range(5))
def test_t_d4_kv_of_rejected_tokens_is_never_served(seed):
    """Audit: whatever speculation did, each cached block serves what a fresh run would compute."""
    rng = random.Random(seed)
    scheduler, device = make(num_blocks=40)
    prompts = {i: [rng.randrange(3) for _ in range(rng.randrange(1, 20))] for i in range(12)}
    for i, prompt in prompts.items():
        scheduler.submit(i, ids(prompt), max_new_tokens=16)
    told: dict[int, list[int]] = {i: [] for i in prompts}
    num_rejected = 0
    while plan := scheduler.plan(0):
        sampled = device.execute(plan)
        rows = plan.sampled_requests.tolist()
        accepted = []
        for r in dict.fromkeys(rows):
            first, count = rows.index(r), rows.count(r)
            end = int(plan.query_starts[r + 1])
            drafts = plan.token_ids[end - count + 1 : end].tolist()
            right = sampled[first : first + count - 1].tolist()
            accepted.append(
                1 + next((n for n in range(count - 1) if drafts[n] != right[n]), count - 1)
            )
            num_rejected += count - accepted[-1]
        for delta in scheduler.commit(plan.guard, sampled, ids(accepted)):
            told[delta.id] += delta.token_ids
            if delta.finish_reason is None:
                guess = text_alone(prompts[delta.id], len(told[delta.id]) + 3)[-3:]
                wrong = [token if rng.random() < 0.5 else (token + 1) % 50 for token in guess]
                scheduler.propose(delta.id, ids(wrong))
    assert num_rejected > 20
    for i, prompt in prompts.items():
        assert told[i] == text_alone(prompt, 16)
        turn = [*prompt, *told[i], 1]
        scheduler.submit(100 + i, ids(turn), max_new_tokens=3)
        again, _ = run(scheduler, device)
        assert again[100 + i] == text_alone(turn, 3)


def test_t_e1_what_can_never_fit_is_refused_with_the_limit():
    scheduler, _ = make(num_blocks=8, max_model_tokens=1000)
    with pytest.raises(ContextTooLong, match="33 tokens"):
        scheduler.submit(1, ids([1] * 40), max_new_tokens=1)
    with pytest.raises(InvalidRequest, match="33 tokens"):
        scheduler.submit(1, ids([1] * 20), max_new_tokens=14)
    scheduler.submit(1, ids([1] * 20), max_new_tokens=13)


@pytest.mark.parametrize("seed", range(12))
def test_t_e3_copies_may_fail_or_hang_at_any_point(seed):
    """Copies fail, come late, or in another order: texts are as alone, and nothing leaks."""
    rng = random.Random(seed)
    scheduler, device = make(num_blocks=14, num_host_blocks=12)
    host = HostTier(device, 12)
    families = [[f] * 20 for f in range(3)]
    pending, expected, texts = [], {}, {}
    for i in range(30):
        prompt = [*families[rng.randrange(3)][: rng.randrange(5, 20)], rng.randrange(4)]
        expected[i] = text_alone(prompt, 6)
        pending.append((i, prompt))
    copies = []
    while pending or copies or scheduler.stats().num_running + scheduler.stats().num_waiting:
        if pending and rng.random() < 0.3:
            i, prompt = pending.pop()
            scheduler.submit(i, ids(prompt), max_new_tokens=6)
        if copy := scheduler.plan_copies():
            copies.append(copy)
        if copies and rng.random() < 0.4:
            copy = copies.pop(rng.randrange(len(copies)))
            has_succeeded = rng.random() < 0.6
            host.run(copy, has_succeeded=has_succeeded)
            scheduler.commit_copy(copy.guard, has_succeeded=has_succeeded)
        if plan := scheduler.plan(0):
            for delta in scheduler.commit(plan.guard, device.execute(plan)):
                texts.setdefault(delta.id, []).extend(delta.token_ids)
    assert texts == expected
    stats = scheduler.stats()
    assert (stats.num_free_blocks, stats.num_free_host_blocks) == (14, 12)


def test_t_e3_the_host_serves_what_the_device_had_to_evict():
    scheduler, device = make(num_blocks=8, num_host_blocks=8)
    host = HostTier(device, 8)
    prompt = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)

    def copy_all():
        while copy := scheduler.plan_copies():
            host.run(copy, has_succeeded=True)
            scheduler.commit_copy(copy.guard, has_succeeded=True)

    scheduler.submit(1, ids(prompt), max_new_tokens=1)
    run(scheduler, device)
    copy_all()
    scheduler.submit(2, ids([50] * 29), max_new_tokens=1)
    run(scheduler, device)
    scheduler.submit(3, ids(prompt), max_new_tokens=2)
    assert scheduler.plan(0) is None  # its prompt is being loaded
    copy_all()
    texts, computed = run(scheduler, device)
    assert texts[3] == text_alone(prompt, 2)
    assert computed[3] == 2
    assert scheduler.explain(3).num_cached_tokens == 12


@pytest.mark.parametrize("max_preemptions", [0, 1, 3])
def test_t_e6_preemption_is_bounded_counted_and_ends(max_preemptions):
    scheduler, device = make(num_blocks=12, max_preemptions=max_preemptions, output_margin_tokens=0)
    prompts = {i: [i, 1, 2] for i in range(10)}
    for i, prompt in prompts.items():
        scheduler.submit(i, ids(prompt), max_new_tokens=30)
    texts, _ = run(scheduler, device)
    assert texts == {i: text_alone(prompt, 30) for i, prompt in prompts.items()}
    counts = [scheduler.explain(i).num_preemptions for i in prompts]
    assert max(counts) <= max_preemptions
    assert sum(counts) == scheduler.stats().num_preemptions
    assert (sum(counts) > 0) == (max_preemptions > 0)


def test_t_f2_a_session_goes_on_after_an_abort_at_any_step():
    prompt = [5] * 18
    for steps_before in range(12):
        scheduler, device = make()
        scheduler.submit(1, ids(prompt), max_new_tokens=8)
        for _ in range(steps_before):
            if plan := scheduler.plan(0):
                scheduler.commit(plan.guard, device.execute(plan))
        plan = scheduler.plan(0)
        scheduler.abort(1)
        if plan is not None:
            scheduler.commit(plan.guard, device.execute(plan))
        assert scheduler.stats().num_free_blocks == 32
        scheduler.submit(1, ids(prompt), max_new_tokens=8)
        texts, _ = run(scheduler, device)
        assert texts[1] == text_alone(prompt, 8)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_t_f3_random_aborts_leave_every_block_home_on_both_tiers(depth):
    rng = random.Random(depth)
    scheduler, device = make(num_blocks=14, num_host_blocks=10, overlap=depth)
    host = HostTier(device, 10)
    plans, copies, alive = [], [], []
    for i in range(1000):
        scheduler.submit(i, ids([rng.randrange(2)] * rng.randrange(1, 30)), max_new_tokens=9)
        alive.append(i)
        if len(plans) <= depth and (plan := scheduler.plan(0)):
            plans.append(plan)
        if copy := scheduler.plan_copies():
            copies.append(copy)
        if rng.random() < 0.6 or len(alive) > 8:
            scheduler.abort(alive.pop(rng.randrange(len(alive))))
        if copies and rng.random() < 0.5:
            copy = copies.pop(0)
            host.run(copy, has_succeeded=True)
            scheduler.commit_copy(copy.guard, has_succeeded=True)
        if plans and (len(plans) > depth or rng.random() < 0.5):
            plan = plans.pop(0)
            scheduler.commit(plan.guard, device.execute(plan))
    for i in alive:
        scheduler.abort(i)
    for plan in plans:
        scheduler.commit(plan.guard, device.execute(plan))
    for copy in copies:
        scheduler.commit_copy(copy.guard, has_succeeded=False)
    stats = scheduler.stats()
    assert (stats.num_free_blocks, stats.num_free_host_blocks) == (14, 10)
    assert stats.num_running == stats.num_waiting == stats.num_steps_in_flight == 0
