# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters as arrays: a row per slot, filled when a request takes the slot."""

import numpy as np
import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import StepPlan
from tokenlight.wire import SamplingParams

_NOBODY = -1  # request ids are never negative


class Sampler:
    """Draws the next token of each sampled row.

    A token depends on its row's logits, its request's parameters and its position alone, so a
    request that was preempted, moved to another slot or batched with others draws the same tokens.
    """

    def __init__(self, max_num_requests: int) -> None:
        self._params: dict[int, SamplingParams] = {}
        self._owners = np.full(max_num_requests, _NOBODY, np.int64)
        self._temperature = np.zeros(max_num_requests, np.float32)
        self._top_k = np.zeros(max_num_requests, np.int32)
        self._top_p = np.ones(max_num_requests, np.float32)
        self._min_p = np.zeros(max_num_requests, np.float32)
        self._seeds = np.zeros(max_num_requests, np.int64)

    def add(self, request_id: int, params: SamplingParams) -> None:
        """Remember a request's parameters until it is removed."""
        self._params[request_id] = params
        self._owners[self._owners == request_id] = _NOBODY  # of an earlier request with this id

    def remove(self, request_id: int) -> None:
        self._params.pop(request_id, None)

    def sample(self, plan: StepPlan, logits_SV: Tensor) -> Tensor:
        """Token ids, int32[S], of the plan's sampled rows."""
        requests = plan.sampled_requests
        slots = plan.slots[requests]
        self._fill(plan.request_ids[requests], slots)
        return kernels.sample(
            logits_SV,
            torch.from_numpy(self._temperature[slots]),
            torch.from_numpy(self._top_k[slots]),
            torch.from_numpy(self._top_p[slots]),
            torch.from_numpy(self._min_p[slots]),
            torch.from_numpy(self._seeds[slots]),
            # The token being sampled stands one after the row that its logits come from.
            torch.from_numpy(plan.positions[plan.sampled_rows] + 1),
        )

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
