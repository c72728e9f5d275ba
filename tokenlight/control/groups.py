# SPDX-License-Identifier: Apache-2.0
"""A scheduler per group of ranks that has KV of its own; a step is a step of each, at once.

Ranks with other tokens in attention keep other requests' KV. A request's group is chosen once, when
it is submitted. To whoever runs the steps, the groups are one: the slots of each stand behind those
of the group before, and so do its requests, its tokens and its sampled rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenlight.control._control import Delta, Scheduler, StepPlan
from tokenlight.control.plan import Ids, Plan


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What a group has to do, and what its cache has of a prompt that looks for a place."""

    num_tokens: int
    """Of the prompts of its unfinished requests."""
    num_requests: int
    num_cached_tokens: int


def choose_group(loads: Sequence[GroupLoad]) -> int:
    """Where there is least to do, the prompt counted as far as it is not cached there.

    So a conversation stays where its KV is, until computing it again elsewhere takes less than what
    would be before it here.
    """

    def cost(group: int) -> tuple[int, int, int]:
        load = loads[group]
        return load.num_tokens - load.num_cached_tokens, load.num_requests, group

    return min(range(len(loads)), key=cost)


@dataclass(frozen=True, slots=True)
class GroupPart:
    """A group's own plan."""

    group: int
    plan: StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedPlan:
    """As `StepPlan`. Groups without a part have nothing to do in this step."""

    guard: tuple[GroupPart, ...]
    request_ids: NDArray[np.int64]
    slots: Ids
    token_ids: Ids
    positions: Ids
    query_starts: Ids
    kv_lens: Ids
    sampled_rows: Ids
    sampled_requests: Ids
    patches: Ids

    @property
    def block_table(self) -> Ids:
        """Empty: each group's ranks keep its own, by `patches`."""
        return np.zeros((0, 0), np.int32)

    @property
    def num_requests(self) -> int:
        return len(self.slots)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_sampled(self) -> int:
        return len(self.sampled_rows)


_NO_IDS = np.zeros(0, np.int32)
NO_PLAN = GroupedPlan(
    guard=(),
    request_ids=np.zeros(0, np.int64),
    slots=_NO_IDS,
    token_ids=_NO_IDS,
    positions=_NO_IDS,
    query_starts=np.zeros(1, np.int32),
    kv_lens=_NO_IDS,
    sampled_rows=_NO_IDS,
    sampled_requests=_NO_IDS,
    patches=np.zeros((0, 4), np.int32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedStats:
    """As `Stats`: sums over the groups, but for the steps, which all groups take together."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_cached_blocks: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_sampled_tokens: int
    num_preemptions: int
    num_steps: int


class GroupedScheduler:
    """Used as a `Scheduler`."""

    def __init__(self, schedulers: Sequence[Scheduler], *, max_num_requests: int) -> None:
        """Each scheduler has at most `max_num_requests` slots."""
        self._schedulers = tuple(schedulers)
        self._num_slots = max_num_requests
        self._groups: dict[int, int] = {}  # unfinished request -> its group
        self._tokens: dict[int, int] = {}  # and the tokens of its prompt
        self._num_steps = 0

    def submit(
        self,
        id: int,
        prompt_token_ids: Ids,
        *,
        max_new_tokens: int,
        stop_token_ids: Ids | None = None,
        priority: int = 0,
        cache_salt: bytes = b"",
    ) -> None:
        group = choose_group(self._loads(prompt_token_ids, cache_salt))
        self._schedulers[group].submit(
            id,
            prompt_token_ids,
            max_new_tokens=max_new_tokens,
            stop_token_ids=stop_token_ids,
            priority=priority,
            cache_salt=cache_salt,
        )
        self._groups[id], self._tokens[id] = group, len(prompt_token_ids)

    def group_of(self, id: int) -> int:
        """Where an unfinished request is."""
        return self._groups[id]

    def abort(self, id: int) -> bool:
        group = self._forget(id)
        return group is not None and self._schedulers[group].abort(id)

    def propose(self, id: int, draft_token_ids: Ids) -> None:
        self._schedulers[self._groups[id]].propose(id, draft_token_ids)

    def plan(self, now_us: int) -> GroupedPlan | None:
        parts = [
            GroupPart(group, plan)
            for group, scheduler in enumerate(self._schedulers)
            if (plan := scheduler.plan(now_us)) is not None
        ]
        self._num_steps += bool(parts)
        return merge(parts, self._num_slots) if parts else None

    def commit(
        self,
        guard: tuple[GroupPart, ...],
        sampled_token_ids: Ids,
        num_accepted: Ids | None = None,
    ) -> list[Delta]:
        deltas = []
        for part, token_ids, accepted in _split(guard, sampled_token_ids, num_accepted):
            deltas += self._schedulers[part.group].commit(part.plan.guard, token_ids, accepted)
        for delta in deltas:
            if delta.finish_reason is not None:
                self._forget(delta.id)
        return deltas

    def stats(self) -> GroupedStats:
        all_stats = [scheduler.stats() for scheduler in self._schedulers]
        counts: dict[str, Any] = {
            each.name: sum(getattr(stats, each.name) for stats in all_stats)
            for each in fields(GroupedStats)
        }
        return GroupedStats(**{**counts, "num_steps": self._num_steps})

    @property
    def max_request_tokens(self) -> int:
        return min(scheduler.max_request_tokens for scheduler in self._schedulers)

    def _forget(self, id: int) -> int | None:
        self._tokens.pop(id, None)
        return self._groups.pop(id, None)

    def _loads(self, prompt_token_ids: Ids, cache_salt: bytes) -> list[GroupLoad]:
        num_tokens, num_requests = [0] * len(self._schedulers), [0] * len(self._schedulers)
        for id, group in self._groups.items():
            num_tokens[group] += self._tokens[id]
            num_requests[group] += 1
        cached = [
            scheduler.num_cached_tokens(prompt_token_ids, cache_salt=cache_salt)
            for scheduler in self._schedulers
        ]
        return [GroupLoad(*load) for load in zip(num_tokens, num_requests, cached, strict=True)]


def plans_by_group(plan: Plan, num_groups: int) -> Sequence[Plan]:
    """Each group's own plan of a step, with its own slots; one of nothing where it has no part."""
    if num_groups == 1:
        return (plan,)
    plans = {part.group: part.plan for part in plan.guard}
    return [plans.get(group, NO_PLAN) for group in range(num_groups)]


def merge(parts: Sequence[GroupPart], num_slots: int) -> GroupedPlan:
    """One plan of several, whose groups ascend and have `num_slots` slots each."""
    plans = [part.plan for part in parts]
    firsts = [part.group * num_slots for part in parts]
    tokens = list(accumulate((plan.num_tokens for plan in plans), initial=0))
    requests = list(accumulate((plan.num_requests for plan in plans), initial=0))

    def behind(offsets: Sequence[int], arrays: Sequence[Ids]) -> Ids:
        return np.concatenate([a + np.int32(n) for n, a in zip(offsets, arrays, strict=False)])

    starts = behind(tokens, [plan.query_starts[:-1] for plan in plans])
    slot_of_patch = np.array([[0, first, 0, 0] for first in firsts], np.int32)
    patches = [plan.patches + first for plan, first in zip(plans, slot_of_patch, strict=True)]
    return GroupedPlan(
        guard=tuple(parts),
        request_ids=np.concatenate([plan.request_ids for plan in plans]),
        slots=behind(firsts, [plan.slots for plan in plans]),
        token_ids=np.concatenate([plan.token_ids for plan in plans]),
        positions=np.concatenate([plan.positions for plan in plans]),
        query_starts=np.append(starts, np.int32(tokens[-1])),
        kv_lens=np.concatenate([plan.kv_lens for plan in plans]),
        sampled_rows=behind(tokens, [plan.sampled_rows for plan in plans]),
        sampled_requests=behind(requests, [plan.sampled_requests for plan in plans]),
        patches=np.concatenate(patches),
    )


def _split(
    parts: Sequence[GroupPart], token_ids: Ids, num_accepted: Ids | None
) -> Iterator[tuple[GroupPart, Ids, Ids | None]]:
    """Each part's share of what its step gave."""
    row = request = 0
    for part in parts:
        end_row = row + part.plan.num_sampled
        accepted = None
        if num_accepted is not None:
            end_request = request + len(np.unique(part.plan.sampled_requests))
            accepted, request = num_accepted[request:end_request], end_request
        yield part, token_ids[row:end_row], accepted
        row = end_row
