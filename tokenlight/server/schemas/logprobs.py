# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities as chat completions and as completions tell them."""

from __future__ import annotations

import msgspec


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    """The token's text; what is no whole character is shown as U+FFFD."""
    logprob: float
    bytes: list[int]


class ContentLogprob(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    content: list[ContentLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    text_offset: list[int]
    """Where each token's text begins, in characters from the begin of the choice's text."""
    token_logprobs: list[float | None]
    """Null for the first token of an echoed prompt."""
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    logprob: float
    rank: int
    """1 for the likeliest."""
    decoded_token: str
    """The token's text; what is no whole character is shown as U+FFFD."""
