# SPDX-License-Identifier: Apache-2.0
"""A grammar on one request's rows: what its rules forbid cannot be sampled.

Shapes: V vocabulary (the model's; it may be larger than the tokenizer's).
"""

from __future__ import annotations

import math
from concurrent.futures import Future

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
        allowed_V = torch.from_numpy(self._matcher.allowed())
        logits_V[: len(allowed_V)].masked_fill_(~allowed_V, -math.inf)
        logits_V[len(allowed_V) :] = -math.inf

    def note(self, token_id: int) -> None:
        """The token that was sampled at the position last shaped."""
        assert self._matcher is not None
        self._matcher.say(token_id)
