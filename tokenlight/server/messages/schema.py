# SPDX-License-Identifier: Apache-2.0
"""POST /v1/messages and /v1/messages/count_tokens: what comes in and what goes out.

Content blocks come in as plain objects: clients send kinds that no schema of today lists, and one
of them must not end a session. `decode.py` says what becomes of each.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenlight.server.schemas.parameters import MAX_STOPS, Probability, Seed, StopString
from tokenlight.server.schemas.parse_failure import ParseFailure

Block = dict[str, Any]
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class InputMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block] | None = None
    """Text, or content blocks; null is an empty text."""


class ToolChoiceField(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    """With `tool`: the one that must be called."""
    disable_parallel_tool_use: bool | None = None


class ThinkingField(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """`enabled`, `adaptive`, `between_tools` or `disabled`."""
    budget_tokens: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    display: str | None = None
    """`omitted`: thinking blocks come without text; their signature still carries it back."""


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None
    format: dict[str, Any] | None = None
    """`{"type": "json_schema", "schema": ...}`."""
    task_budget: dict[str, Any] | None = None
    """Left out and named: no template tells a model of it."""


class ContextManagement(msgspec.Struct, frozen=True, kw_only=True):
    edits: list[Any] | None = None
    """Left out and named: nothing is taken out of a history here. Claude Code sends one always."""


class PromptFields(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the prompt: all that count_tokens needs."""

    model: str | None = None
    """A name from /v1/models; may be left out."""
    messages: Annotated[list[InputMessage], Meta(min_length=1)]
    system: str | list[Block] | None = None
    tools: list[dict[str, Any]] | None = None
    mcp_servers: list[Any] | None = None
    """Left out and named, as all that runs on the vendor's servers."""
    tool_choice: ToolChoiceField | None = None
    thinking: ThinkingField | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    """Where beta clients send `output_config.format`."""
    context_management: ContextManagement | None = None
    diagnostics: dict[str, Any] | None = None
    """Left out and named; the header x-tokenlight-explain asks for what is known of a prefix."""


class MessagesRequest(PromptFields, frozen=True, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Most tokens to generate; lowered when the context has less room, never refused."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    seed: Seed | None = None
    """The same seed, prompt and parameters give the same text; an extension of the protocol."""
    metadata: dict[str, Any] | None = None
    """The caller's own; used for nothing, as the next five: one tier, one cache, no accounts."""
    service_tier: str | None = None
    cache_control: dict[str, Any] | None = None
    billing_policy: dict[str, Any] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None


class CountTokensRequest(PromptFields, frozen=True, kw_only=True):
    pass


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    """Exactly the prompt tokens that the same request to /v1/messages would have."""


class MessagesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """`input_tokens + cache_read_input_tokens + cache_creation_input_tokens` is the prompt."""

    input_tokens: int
    """Prompt tokens that were computed."""
    cache_read_input_tokens: int
    """Prompt tokens whose computation was reused from an earlier request."""
    cache_creation_input_tokens: int = 0
    """Always 0: every computed token may serve later prompts, at no price."""
    output_tokens: int


class MessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessagesUsage
    parse_failures: list[ParseFailure] | UnsetType = UNSET
    """Calls that the model began and did not make; an extension of the protocol."""


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One server-sent event; `event:` repeats its type."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    message: MessageAnswer | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: Block | UnsetType = UNSET
    delta: Block | UnsetType = UNSET
    usage: MessagesUsage | UnsetType = UNSET
    parse_failures: list[ParseFailure] | UnsetType = UNSET
    error: dict[str, str] | UnsetType = UNSET


class MessagesError(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    message: str


class MessagesErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer of this protocol that is not a success."""

    type: Literal["error"] = "error"
    error: MessagesError
    request_id: str | None = None
