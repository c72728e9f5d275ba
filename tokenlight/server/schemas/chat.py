# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenlight.server.schemas.logprobs import ChatLogprobs, PromptLogprob
from tokenlight.server.schemas.parameters import GenerationFields
from tokenlight.server.schemas.parse_failure import ParseFailure
from tokenlight.server.schemas.usage import Usage
from tokenlight.text.conversation import Message
from tokenlight.wire import MAX_LOGPROBS

FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class ChatRequest(GenerationFields, frozen=True, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    """The newer name of max_tokens; wins when both are sent."""
    logprobs: bool | None = None
    """Tell each token's log-probability."""
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """With logprobs: and those of this many likeliest tokens. Default 0."""
    tools: list[dict[str, Any]] | None = None
    """Functions and custom tools that the model may call."""
    tool_choice: str | dict[str, Any] | None = None
    """auto, none, required, one tool, or allowed_tools. Default auto."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may hold several calls. Default true."""
    reasoning_effort: str | None = None
    """none, minimal, low, medium, high. Default: as the model's template has it."""
    response_format: dict[str, Any] | None = None
    """text, json_object or json_schema."""
    add_generation_prompt: bool | None = None
    """Open the assistant's turn after the messages. Default true."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the model's chat template."""
    metadata: dict[str, Any] | None = None
    """The caller's own, used for nothing, as the next five: one tier, one cache, no accounts."""
    safety_identifier: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    verbosity: str | None = None
    """Used for nothing: no template knows of it. Some clients send it with every request."""
    prediction: dict[str, Any] | None = None
    """Used for nothing: it would make an answer faster, and no other."""

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str
    """JSON; in a stream, the next part of it."""


class CalledCustom(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    input: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A call; in a stream, the next part of the one at `index`."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET
    incomplete: bool | UnsetType = UNSET
    """True for a call that is cut off: do not run it. An extension of the protocol."""


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """Null where there are only calls."""
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason
    token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids."""
    parse_failures: list[ParseFailure] | UnsetType = UNSET
    """Calls that the model began and did not make; an extension of the protocol."""


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids."""
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
    """Only when asked for: of each prompt token, by token id; null for the first."""


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids: those that came since the chunk before."""
    parse_failures: list[ParseFailure] | UnsetType = UNSET
    """With the finish reason, if there were any."""


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    """Only with stream_options.include_usage: null until the last chunk."""
    prompt_token_ids: list[int] | UnsetType = UNSET
    """Only with return_token_ids, in the first chunk."""
