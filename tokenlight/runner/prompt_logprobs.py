# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of prompts, for requests that ask: read as they are computed, told once.

Shapes: T tokens of a step, S rows of a slice, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.control import Plan
from tokenlight.wire import PromptLogprobs

# Rows whose logits are in memory at once: a chunk's would be gigabytes where vocabularies are long.
SLICE_ROWS = 64


@dataclass(slots=True)
class _Prompt:
    token_ids: NDArray[np.int32]
    num_top: int
    told: list[PromptLogprobs] = field(default_factory=list)
    """Of the tokens from the second on, as far as the prompt was computed."""


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Rows of a step that each give the log-probability of the prompt's next token."""

    request_id: int
    first_row: int
    num_rows: int


class PromptReader:
    """Holds what was read of each prompt until its request's first token is sampled.

    A request that is preempted before that is read on from where it was; after it, never again.
    """

    def __init__(self) -> None:
        self._prompts: dict[int, _Prompt] = {}

    def add(self, request_id: int, prompt_token_ids: NDArray[np.int32], num_top: int) -> None:
        """Read this prompt, which must be computed from its first token on."""
        self._prompts[request_id] = _Prompt(prompt_token_ids, num_top)

    def remove(self, request_id: int) -> None:
        self._prompts.pop(request_id, None)

    def chunks(self, plan: Plan) -> list[PromptChunk]:
        """The rows to read in this step."""
        if not self._prompts:
            return []
        chunks = []
        for place, request_id in enumerate(plan.request_ids.tolist()):
            prompt = self._prompts.get(request_id)
            if prompt is None:
                continue
            start, end = plan.query_starts[place : place + 2].tolist()
            num_before = len(prompt.told) - int(plan.positions[start])
            if num_before < 0:
                continue  # the step before raised, and with it this request ends
            # The row of the prompt's last token gives the answer's first.
            num_rows = min(end - start - num_before, len(prompt.token_ids) - 1 - len(prompt.told))
            if num_rows > 0:
                chunks.append(PromptChunk(request_id, start + num_before, num_rows))
        return chunks

    def read(
        self, chunks: Iterable[PromptChunk], logits_of: Callable[[Tensor], Tensor]
    ) -> list[int]:
        """Note what the rows say; a slice of rows at a time.

        Args:
            chunks: this step's.
            logits_of: int32 rows of the step -> their logits, float32 [S, V].

        Returns:
            Requests with logits that are not finite.
        """
        bad = []
        for chunk in chunks:
            prompt = self._prompts[chunk.request_id]
            rows = torch.arange(chunk.num_rows, dtype=torch.int32) + chunk.first_row
            is_finite = True
            for slice_S in rows.split(SLICE_ROWS):
                logits_SV = logits_of(slice_S)
                is_finite = is_finite and bool(logits_SV.sum(1).isfinite().all())
                for logits_V in logits_SV:
                    next_id = int(prompt.token_ids[len(prompt.told) + 1])
                    prompt.told.append(_told(logits_V, next_id, prompt.num_top))
            if not is_finite:
                bad.append(chunk.request_id)
        return bad

    def take(self, plan: Plan) -> dict[int, list[PromptLogprobs]]:
        """Of requests that this step samples from for the first time; they are forgotten here."""
        if not self._prompts:
            return {}
        sampled = plan.request_ids[plan.sampled_requests].tolist()
        return {i: self._prompts.pop(i).told for i in sampled if i in self._prompts}


def _told(logits_V: Tensor, token_id: int, num_top: int) -> PromptLogprobs:
    # Row by row: what shares the call must not change a sum's order.
    logprobs_V = torch.log_softmax(logits_V, 0)
    logprob = logprobs_V[token_id]
    top = torch.topk(logprobs_V, min(num_top, len(logprobs_V)))
    rank = 1 + int((logprobs_V > logprob).sum())
    return PromptLogprobs(float(logprob), top.indices.tolist(), top.values.tolist(), rank)
