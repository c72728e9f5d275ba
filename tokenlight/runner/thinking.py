# SPDX-License-Identifier: Apache-2.0
"""A bound on one request's reasoning: once it is spent, the model is made to end it."""

from __future__ import annotations

import math

from torch import Tensor

from tokenlight.wire import ThinkingBudget


class ThinkingLimit:
    """Follows one answer; counts what is said behind the opener."""

    def __init__(self, budget: ThinkingBudget, *, num_prompt_tokens: int) -> None:
        self._budget = budget
        self._num_prompt_tokens = num_prompt_tokens
        self._said: list[int] = []
        self._num_thought: int | None = 0 if budget.opener is None else None
        self._is_closed = False

    def shape_(self, logits_V: Tensor, position: int) -> None:
        """Leave only the next token of the ending, where it is due."""
        num_said = position - self._num_prompt_tokens
        if num_said < len(self._said):
            self._restart(self._said[:num_said])  # their step was never committed
        token_id = self._due()
        if token_id is not None:
            logits_V.fill_(-math.inf)
            logits_V[token_id] = 0

    def note(self, token_id: int) -> None:
        """The token that was sampled at the position last shaped."""
        self._said.append(token_id)
        if self._num_thought is None:
            if token_id == self._budget.opener:
                self._num_thought = 0
        elif token_id == self._budget.closer:
            self._is_closed = True
        else:
            self._num_thought += 1

    def _restart(self, said: list[int]) -> None:
        self._said = []
        self._num_thought = 0 if self._budget.opener is None else None
        self._is_closed = False
        for token_id in said:
            self.note(token_id)

    def _due(self) -> int | None:
        if self._is_closed or self._num_thought is None:
            return None
        place = self._num_thought - self._budget.num_tokens
        return self._budget.ending[place] if place >= 0 else None
