# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters as arrays: a row per slot, filled when a request takes the slot."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import StepPlan
from tokenlight.runner.shaping import Shaper, is_shaping
from tokenlight.wire import SamplingParams

NO_TOKENS = np.zeros(0, np.int32)
_NOBODY = -1  # request ids are never negative


class Sampler:
    """Draws the next token of each sampled row.

    A token depends on its row's logits, its request's parameters and its position alone, so a
    request that was preempted, moved to another slot or batched with others draws the same tokens.
    """

    def __init__(self, max_num_requests: int) -> None:
        self._params: dict[int, SamplingParams] = {}
        self._shapers: dict[int, Shaper] = {}
        self._telling: set[int] = set()
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
        self._params[request_id] = params
        if params.num_logprobs is not None:
            self._telling.add(request_id)
        if is_shaping(params):
            self._shapers[request_id] = Shaper(params, prompt_token_ids, stop_token_ids)
        self._owners[self._owners == request_id] = _NOBODY  # of an earlier request with this id

    def remove(self, request_id: int) -> None:
        self._params.pop(request_id, None)
        self._shapers.pop(request_id, None)
        self._telling.discard(request_id)

    def sample(self, plan: StepPlan, logits_SV: Tensor) -> Tensor:
        """Token ids, int32[S], of the plan's sampled rows. Logits may be changed."""
        requests = plan.sampled_requests
        slots = plan.slots[requests]
        request_ids = plan.request_ids[requests]
        # The token being sampled stands one after the row that its logits come from.
        positions = plan.positions[plan.sampled_rows] + 1
        self._fill(request_ids, slots)
        shapers = self._shapers_of(request_ids)
        for row, shaper in shapers.items():
            shaper.shape_(logits_SV[row], int(positions[row]))
        token_ids = kernels.sample(
            logits_SV,
            torch.from_numpy(self._temperature[slots]),
            torch.from_numpy(self._top_k[slots]),
            torch.from_numpy(self._top_p[slots]),
            torch.from_numpy(self._min_p[slots]),
            torch.from_numpy(self._seeds[slots]),
            torch.from_numpy(positions),
        )
        for row, shaper in shapers.items():
            shaper.note(int(token_ids[row]))
        return token_ids

    def num_logprobs(self, plan: StepPlan) -> dict[int, int]:
        """Sampled row -> how many likeliest tokens to tell, of requests that want to be told."""
        if not self._telling:
            return {}
        asked = (
            self._params[int(request_id)].num_logprobs
            for request_id in plan.request_ids[plan.sampled_requests]
        )
        return {row: number for row, number in enumerate(asked) if number is not None}

    def _shapers_of(self, request_ids: NDArray[np.int64]) -> dict[int, Shaper]:
        """Row -> shaper, for the rows that have one."""
        if not self._shapers:
            return {}
        found = ((row, self._shapers.get(int(r))) for row, r in enumerate(request_ids))
        return {row: shaper for row, shaper in found if shaper is not None}

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
