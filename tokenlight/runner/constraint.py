# SPDX-License-Identifier: Apache-2.0
"""A grammar on one request's rows: what its rules forbid cannot be sampled.

Shapes: V vocabulary (the model's; it may be larger than the tokenizer's).
"""

from __future__ import annotations

import math
from concurrent.futures import Future

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.text.grammar.matching import AnswerMatcher, Choice, Rules


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
        choice = self._matcher.choice()
        if logits_V.is_cpu:
            _keep_only_(logits_V.numpy(), choice, self._matcher.vocab_size)
            return
        ids = torch.from_numpy(choice.token_ids).to(logits_V.device, non_blocking=True)
        if choice.are_allowed:
            kept = logits_V[ids]
            kept = torch.where(kept.max() == -math.inf, 0, kept)
            logits_V.fill_(-math.inf)
            logits_V[ids] = kept
        else:
            logits_V[ids] = -math.inf
        logits_V[self._matcher.vocab_size :] = -math.inf

    def note(self, token_id: int) -> None:
        """The token that was sampled at the position last shaped."""
        assert self._matcher is not None
        self._matcher.say(token_id)

    def forced(self) -> list[int]:
        """The tokens that must come next, one after the other."""
        return [] if self._matcher is None else self._matcher.forced()


def _keep_only_(logits_V: NDArray[np.float32], choice: Choice, num_known: int) -> None:
    """A masked fill that touches as little as it can: a fifteenth of torch's time."""
    if choice.are_allowed:
        kept = logits_V[choice.token_ids]
        if kept.max() == -np.inf:
            kept[:] = 0  # min_tokens holds back the end, and there is nothing else to say
        logits_V.fill(-np.inf)
        logits_V[choice.token_ids] = kept
    else:
        logits_V[choice.token_ids] = -np.inf
        logits_V[num_known:] = -np.inf
