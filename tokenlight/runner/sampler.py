# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters as arrays: a row per slot, filled when a request takes the slot."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import Plan
from tokenlight.runner.constraint import Constraint
from tokenlight.runner.shaping import Shaper, is_shaping
from tokenlight.runner.thinking import ThinkingLimit
from tokenlight.text.grammar.matching import Grammars, Rules
from tokenlight.wire import SamplingParams

NO_TOKENS = np.zeros(0, np.int32)
NO_DRAFT = -1
_NOBODY = -1  # request ids are never negative


class RowParams(NamedTuple):
    """What `kernels.sample` wants beside the logits: an entry per sampled row."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    positions: Tensor


class RowShaper(Protocol):
    """Changes one request's logits before its token is chosen."""

    def shape_(self, logits_V: Tensor, position: int) -> None: ...
    def note(self, token_id: int) -> None: ...


# Rows whose shapers have yet to be told what was sampled there.
Unsaid = Sequence[tuple[int, RowShaper]]


class Sampler:
    """Draws the next token of each sampled row.

    A token depends on its row's logits, its request's parameters and its position alone, so a
    request that was preempted, moved to another slot or batched with others draws the same tokens.
    """

    def __init__(self, max_num_requests: int, grammars: Grammars | None = None) -> None:
        self._grammars = grammars
        self._params: dict[int, SamplingParams] = {}
        self._shapers: dict[int, list[RowShaper]] = {}
        self._constraints: dict[int, Constraint] = {}
        self._telling: set[int] = set()
        self.num_added = 0
        """While it is the same, so are the parameters of a request id."""
        self._owners = np.full(max_num_requests, _NOBODY, np.int64)
        self._temperature = np.zeros(max_num_requests, np.float32)
        self._top_k = np.zeros(max_num_requests, np.int32)
        self._top_p = np.ones(max_num_requests, np.float32)
        self._min_p = np.zeros(max_num_requests, np.float32)
        self._seeds = np.zeros(max_num_requests, np.int64)

    def add(
        self,
        request_id: int,
        params: SamplingParams,
        prompt_token_ids: NDArray[np.int32] = NO_TOKENS,
        stop_token_ids: Sequence[int] = (),
    ) -> None:
        """Remember a request's parameters until it is removed.

        Args:
            request_id: the scheduler's.
            params: what it asked for.
            prompt_token_ids: for the repetition penalty, and to tell the answer's first position.
            stop_token_ids: which min_tokens holds back.
        """
        self.num_added += 1
        self._params[request_id] = params
        if params.num_logprobs is not None:
            self._telling.add(request_id)
        shapers: list[RowShaper] = []
        if is_shaping(params):
            shapers.append(Shaper(params, prompt_token_ids, stop_token_ids))
        if params.grammar is not None and self._grammars is not None:
            constraint = self._constraints[request_id] = Constraint(
                self._grammars.compile(params.grammar.rules),
                after=params.grammar.after,
                num_prompt_tokens=len(prompt_token_ids),
            )
            # Last: no bias brings back what the rules forbid.
            shapers.append(constraint)
        if params.thinking is not None:
            shapers.append(ThinkingLimit(params.thinking, num_prompt_tokens=len(prompt_token_ids)))
        if shapers:
            self._shapers[request_id] = shapers
        self._owners[self._owners == request_id] = _NOBODY  # of an earlier request with this id

    def remove(self, request_id: int) -> None:
        self._params.pop(request_id, None)
        self._shapers.pop(request_id, None)
        self._constraints.pop(request_id, None)
        self._telling.discard(request_id)

    def compiling(self, params: SamplingParams) -> Future[Rules] | None:
        """The grammar, begun to be compiled; None where there is none to wait for."""
        if params.grammar is None or self._grammars is None:
            return None
        compiled = self._grammars.compile(params.grammar.rules)
        is_there = compiled.done() and compiled.exception() is None
        return None if is_there else compiled

    def forced(self, request_id: int) -> list[int]:
        """The tokens that must come next, one after the other, by the request's grammar."""
        constraint = self._constraints.get(request_id)
        return [] if constraint is None else constraint.forced()

    def sample(self, plan: Plan, logits_SV: Tensor) -> Tensor:
        """Token ids, int32[S], of the plan's sampled rows. Logits may be changed."""
        unsaid = self.shape_(plan, logits_SV)
        columns = (torch.from_numpy(column) for column in self.columns(plan).values())
        token_ids = kernels.sample(logits_SV, *RowParams(*columns))
        for row, shaper in unsaid:
            shaper.note(int(token_ids[row]))
        return token_ids

    def columns(self, plan: Plan) -> dict[str, NDArray[np.generic]]:
        """The fields of the plan's `RowParams` by name, in their order."""
        requests = plan.sampled_requests
        slots = plan.slots[requests]
        self._fill(plan.request_ids[requests], slots)
        return {
            "temperature": self._temperature[slots],
            "top_k": self._top_k[slots],
            "top_p": self._top_p[slots],
            "min_p": self._min_p[slots],
            "seeds": self._seeds[slots],
            # The token being sampled stands one after the row that its logits come from.
            "positions": plan.positions[plan.sampled_rows] + 1,
        }

    def is_shaping(self, plan: Plan) -> bool:
        """Whether logits of the plan are shaped by what their requests have said."""
        return bool(self._shapers) and bool(
            self._shapers_of(plan.request_ids[plan.sampled_requests])
        )

    def shape_(self, plan: Plan, logits_SV: Tensor) -> Unsaid:
        """Change logits in place, once all that the requests have said was told to the shapers."""
        if not self._shapers:
            return ()
        positions = plan.positions[plan.sampled_rows] + 1
        drafts = drafts_behind(plan)
        unsaid: list[tuple[int, RowShaper]] = []
        for row, shaper in self._shapers_of(plan.request_ids[plan.sampled_requests]):
            shaper.shape_(logits_SV[row], int(positions[row]))
            if drafts[row] == NO_DRAFT:
                unsaid.append((row, shaper))
            else:
                # The request's next row stands behind its draft. Where that is not what is sampled
                # here, what the next row gives is void.
                shaper.note(int(drafts[row]))
        return unsaid

    def num_logprobs(self, plan: Plan) -> dict[int, int]:
        """Sampled row -> how many likeliest tokens to tell, of requests that want to be told."""
        if not self._telling:
            return {}
        asked = (
            self._params[int(request_id)].num_logprobs
            for request_id in plan.request_ids[plan.sampled_requests]
        )
        return {row: number for row, number in enumerate(asked) if number is not None}

    def _shapers_of(self, request_ids: NDArray[np.int64]) -> list[tuple[int, RowShaper]]:
        """Each row's shapers, in their order."""
        return [
            (row, shaper)
            for row, request_id in enumerate(request_ids)
            for shaper in self._shapers.get(int(request_id), ())
        ]

    def _fill(self, request_ids: np.ndarray, slots: np.ndarray) -> None:
        """Write the rows of slots that changed hands; costs nothing while none did."""
        for row in np.flatnonzero(self._owners[slots] != request_ids):
            slot = slots[row]
            params = self._params[int(request_ids[row])]
            self._owners[slot] = request_ids[row]
            self._temperature[slot] = params.temperature
            self._top_k[slot] = params.top_k
            self._top_p[slot] = params.top_p
            self._min_p[slot] = params.min_p
            self._seeds[slot] = params.seed


def drafts_behind(plan: Plan) -> NDArray[np.int32]:
    """Per sampled row the draft that its request's next row stands behind; NO_DRAFT in its last."""
    requests = plan.sampled_requests
    drafts = np.full(len(requests), NO_DRAFT, np.int32)
    goes_on = np.flatnonzero(requests[1:] == requests[:-1])
    drafts[goes_on] = plan.token_ids[plan.sampled_rows[goes_on + 1]]
    return drafts


def num_accepted(plan: Plan, token_ids: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """Per request that sampled, how many of its tokens stand; None where each has one."""
    if plan.num_tokens == plan.num_requests:
        return None
    drafts = drafts_behind(plan)
    is_last = drafts == NO_DRAFT
    if is_last.all():
        return None
    ends = np.flatnonzero(is_last)
    starts = np.concatenate(([0], ends[:-1] + 1))
    # A token stands when all of its request's drafts before it were sampled.
    stops = np.flatnonzero((token_ids != drafts) | is_last)
    first_stops = stops[np.searchsorted(stops, starts)]
    accepted: NDArray[np.int32] = (first_stops - starts + 1).astype(np.int32)
    return accepted
