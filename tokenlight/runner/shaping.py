# SPDX-License-Identifier: Apache-2.0
"""What a request asks to be changed in its logits before its token is chosen: biases and penalties.

Order: logit_bias, then min_tokens, then the repetition penalty, then the frequency and presence
penalties; temperature and the filters come after, in the sampler. A token depends on its row's
logits and on what its own request has said, so a preempted request is shaped as it was before.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.wire import SamplingParams


def is_shaping(params: SamplingParams) -> bool:
    """Whether these parameters change logits at all."""
    return (
        params.repetition_penalty != 1
        or params.frequency_penalty != 0
        or params.presence_penalty != 0
        or params.min_tokens > 0
        or bool(params.logit_bias)
    )


class Shaper:
    """One request's changes, and what they depend on: the tokens it was given and has sampled."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: NDArray[np.int32],
        stop_token_ids: Sequence[int],
    ) -> None:
        self._params = params
        self._prompt_token_ids = torch.tensor(prompt_token_ids, dtype=torch.int64)
        self._stop_token_ids = torch.tensor(stop_token_ids, dtype=torch.int64)
        self._biased_ids = torch.tensor(list(params.logit_bias), dtype=torch.int64)
        self._biases = torch.tensor(list(params.logit_bias.values()), dtype=torch.float32)
        self._sampled: list[int] = []
        self._counts_V: Tensor | None = None
        self._seen_V: Tensor | None = None

    def shape_(self, logits_V: Tensor, position: int) -> None:
        """Change the logits of the token that will stand at `position`, in place."""
        params = self._params
        self._move_to(logits_V.device)
        self._forget_from(position)
        if len(self._biases):
            logits_V.index_add_(0, self._biased_ids, self._biases)
        if len(self._sampled) < params.min_tokens:
            logits_V[self._stop_token_ids] = -math.inf
        counts_V, seen_V = self._history(len(logits_V), logits_V.device)
        if params.repetition_penalty != 1:
            weaker_V = torch.where(
                logits_V > 0,
                logits_V / params.repetition_penalty,
                logits_V * params.repetition_penalty,
            )
            logits_V.copy_(torch.where(seen_V, weaker_V, logits_V))
        if params.frequency_penalty:
            logits_V -= params.frequency_penalty * counts_V
        if params.presence_penalty:
            logits_V -= params.presence_penalty * (counts_V > 0)

    def note(self, token_id: int) -> None:
        """The token that was sampled at the position last shaped."""
        self._sampled.append(token_id)
        if self._counts_V is not None and self._seen_V is not None:
            self._counts_V[token_id] += 1
            self._seen_V[token_id] = True

    def _forget_from(self, position: int) -> None:
        """What stood at `position` and after is sampled anew: its step was never committed."""
        kept = position - len(self._prompt_token_ids)
        if kept < len(self._sampled):
            del self._sampled[kept:]
            self._counts_V = self._seen_V = None

    def _move_to(self, device: torch.device) -> None:
        """Once, to where the logits are."""
        if self._biases.device != device:
            self._prompt_token_ids = self._prompt_token_ids.to(device)
            self._stop_token_ids = self._stop_token_ids.to(device)
            self._biased_ids, self._biases = self._biased_ids.to(device), self._biases.to(device)

    def _history(self, vocab_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        if self._counts_V is None or self._seen_V is None:
            sampled = torch.tensor(self._sampled, dtype=torch.int64, device=device)
            counts_V = torch.bincount(sampled, minlength=vocab_size).float()
            seen_V = counts_V > 0
            seen_V[self._prompt_token_ids] = True
            self._counts_V, self._seen_V = counts_V, seen_V
        return self._counts_V, self._seen_V
