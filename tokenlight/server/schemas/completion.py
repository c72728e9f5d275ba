# SPDX-License-Identifier: Apache-2.0
"""POST /v1/completions: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenlight.server.schemas.chat import FinishReason
from tokenlight.server.schemas.logprobs import CompletionLogprobs, PromptLogprob
from tokenlight.server.schemas.parameters import GenerationFields
from tokenlight.server.schemas.usage import Usage
from tokenlight.wire import MAX_LOGPROBS

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationFields, frozen=True, kw_only=True):
    prompt: str | list[str | int | list[int]]
    """Text, token ids, or a list of either; n choices per prompt."""
    echo: bool | None = None
    """Put the prompt before the answer."""
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """Tell each token's log-probability and those of this many likeliest tokens; with echo, of
    the prompt's tokens too."""

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def num_prompt_logprobs(self) -> int | None:
        if not self.echo or self.logprobs is None:
            return self.prompt_logprobs
        return max(self.logprobs, self.prompt_logprobs or 0)


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    """prompt's place * n + choice's place."""
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None
    token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids; in a chunk, those that came since the chunk before."""
    prompt_token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids; in a stream, with the choice's first chunk."""
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
    """Only when asked for: of each prompt token, by token id; null for the first."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    """Only with stream_options.include_usage: null until the last chunk."""
