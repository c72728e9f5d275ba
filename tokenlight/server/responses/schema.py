# SPDX-License-Identifier: Apache-2.0
"""POST /v1/responses and what hangs on it: what comes in and what goes out.

Input items and tools come in as plain objects: clients send kinds that no schema of today lists,
and one of them must not end a session. `decode.py` and `openai_tools.py` say what becomes of each.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tokenlight.server.schemas.parameters import Seed
from tokenlight.server.schemas.parse_failure import ParseFailure
from tokenlight.server.schemas.usage import PromptTokensDetails

Item = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class ReasoningField(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None
    summary: str | None = None
    """Kept in the answer, as the next: reasoning is told as it was, and goes where the template
    wants it."""
    context: str | None = None
    mode: str | None = None
    """`standard`; another is refused."""


class TextField(msgspec.Struct, frozen=True, kw_only=True):
    format: dict[str, Any] | None = None
    """`text`, `json_object` or `json_schema`."""
    verbosity: str | None = None
    """Kept in the answer; no template knows of it. Codex sends it with every request."""


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    """A name from /v1/models; may be left out."""
    input: str | list[Item] | None = None
    """What the user says, or a row of items."""
    instructions: str | None = None
    """A system turn before all others; of this request only."""
    previous_response_id: str | None = None
    """A stored response whose conversation this one continues."""
    store: bool | None = None
    """Whether the response can be read and continued later. Default true."""
    stream: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Most tokens to generate; lowered when the context has less room, never refused."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Seed | None = None
    """The same seed, prompt and parameters give the same text; an extension of the protocol."""
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningField | None = None
    text: TextField | None = None
    include: list[str] | None = None
    """`reasoning.encrypted_content` puts into reasoning items what a client can hand back."""
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    """Kept in the answer; prefixes are found without it."""
    prompt_cache_options: dict[str, Any] | None = None
    """Used for nothing, as the next four: one tier, one cache, no accounts, no padding."""
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stream_options: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    """`auto` is named in x-tokenlight-ignored: nothing is cut, what does not fit is refused."""
    context_management: list[dict[str, Any]] | None = None
    """Left out and named: a conversation is never compacted here."""


class InputTokensDetails(PromptTokensDetails, frozen=True, kw_only=True):
    cache_write_tokens: int = 0
    """Always 0: every computed token may serve later prompts, at no price."""


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class ResponsesUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseFault(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    reason: Literal["max_output_tokens"]


class ResponseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    background: bool = False
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningField
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponsesUsage | None = None
    user: str | None = None
    metadata: dict[str, str]
    parse_failures: list[ParseFailure] | UnsetType = UNSET
    """Calls that the model began and did not make; an extension of the protocol."""


class InputTokenCount(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


class ResponsesEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One server-sent event; `event:` repeats its type."""

    type: str
    sequence_number: int
    """0 for the stream's first event."""
    response: ResponseAnswer | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: Item | UnsetType = UNSET
    part: Item | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/responses/{response_id}/input_items."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: Literal[True] = True
