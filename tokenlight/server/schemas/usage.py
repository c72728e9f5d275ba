# SPDX-License-Identifier: Apache-2.0
"""Token counts, as every protocol of OpenAI's family reports them."""

from __future__ import annotations

import msgspec


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int
    """Prompt tokens whose computation was reused from an earlier request."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    """Sampled tokens of all choices, the tokens that ended them included."""
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def make_usage(*, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
    )
