# SPDX-License-Identifier: Apache-2.0
"""A grammar on one request's rows: what its rules forbid cannot be sampled.

Shapes: V vocabulary (the model's; it may be larger than the tokenizer's).
"""

from __future__ import annotations

import math
from concurrent.futures import Future

import numpy as np
import torch
from torch import Tensor

from tokenlight.text.grammar.matching import AnswerMatcher, Rules


class Constraint:
    """Follows one answer through its rules; compiled while its prompt is computed."""

    def __init__(self, rules: Future[Rules], *, after: str, num_prompt_tokens: int) -> None:
        self._rules = rules
        self._after = after
        self._num_prompt_tokens = num_prompt_tokens
        self._matcher: AnswerMatcher | None = None

    def shape_(self, logits_V: Tensor, position: int) -> None:
        """Leave only what may stand at `position`, in place."""
        if self._matcher is None:
            self._matcher = self._rules.result().begin(after=self._after)
        num_tokens = position - self._num_prompt_tokens
        if num_tokens < self._matcher.num_tokens:
            self._matcher.keep(num_tokens)
        forbidden_V = ~self._matcher.allowed()
        known_V = logits_V[: len(forbidden_V)]
        if logits_V.device.type == "cpu":
            # A seventh of masked_fill_'s time.
            np.copyto(known_V.numpy(), -np.inf, where=forbidden_V)
        else:
            mask_V = torch.from_numpy(forbidden_V).to(logits_V.device, non_blocking=True)
            known_V.masked_fill_(mask_V, -math.inf)
        if len(forbidden_V) < len(logits_V):
            logits_V[len(forbidden_V) :] = -math.inf

    def note(self, token_id: int) -> None:
        """The token that was sampled at the position last shaped."""
        assert self._matcher is not None
        self._matcher.say(token_id)
