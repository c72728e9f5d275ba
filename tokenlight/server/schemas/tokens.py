# SPDX-License-Identifier: Apache-2.0
"""POST /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenlight.server.schemas.parameters import TokenId
from tokenlight.text.conversation import Message


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Either a prompt, or messages that the chat template makes one of."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    """Messages only: what the model may call, as in a chat."""
    reasoning_effort: str | None = None
    """Messages only: as in a chat."""
    add_special_tokens: bool | None = None
    """Prompts only: begin with the begin-of-text token. Default: as the model wants it."""
    add_generation_prompt: bool | None = None
    """Messages only: open the assistant's turn. Default true."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Messages only: variables for the model's chat template."""
    return_token_strs: bool | None = None
    """Add each token's text."""


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET
    """What is no whole character is shown as U+FFFD."""


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    tokens: list[TokenId]


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
