# SPDX-License-Identifier: Apache-2.0
"""An answer's items in the Responses protocol, and a response around them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenlight.base.errors import TokenLightError
from tokenlight.server.answer.answer import Ended
from tokenlight.server.answer.items import Item as AnswerItem
from tokenlight.server.decoding.openai_tools import KnownTool, custom_input
from tokenlight.server.decoding.sealed import seal
from tokenlight.server.responses.schema import (
    IncompleteDetails,
    InputTokensDetails,
    Item,
    OutputTokensDetails,
    ReasoningField,
    ResponseAnswer,
    ResponseFault,
    ResponsesRequest,
    ResponsesUsage,
    Status,
)
from tokenlight.server.schemas.parse_failure import parse_failures
from tokenlight.text.conversation import (
    Part,
    Reasoning,
    Text,
    ToolCall,
    Turn,
)

_PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc"}


@dataclass(slots=True)
class ItemEncoder:
    """Gives items their ids and their form. One per response."""

    known: Mapping[str, KnownTool]
    seals_reasoning: bool
    _ids: dict[int, str] = field(default_factory=dict)

    def id_of(self, item: AnswerItem) -> str:
        if item.index not in self._ids:
            prefix = "ctc" if self.is_custom(item) else _PREFIXES[item.kind]
            self._ids[item.index] = f"{prefix}_{secrets.token_hex(12)}"
        return self._ids[item.index]

    def is_custom(self, item: AnswerItem) -> bool:
        known = self.known.get(item.name)
        return item.kind == "call" and known is not None and known.is_custom

    def opened(self, item: AnswerItem) -> Item:
        """As it is announced, still empty."""
        return {**self._item(item, text=""), "status": "in_progress"}

    def closed(self, item: AnswerItem) -> Item:
        status = "completed" if item.is_complete else "incomplete"
        return {**self._item(item, text=item.text), "status": status}

    def part(self, item: AnswerItem, text: str) -> Item:
        """The one content part of a text or of reasoning."""
        if item.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _item(self, item: AnswerItem, *, text: str) -> Item:
        made: Item = {"id": self.id_of(item)}
        if item.kind == "call":
            return {**made, **self._call(item, text)}
        content = [self.part(item, text)] if text else []
        if item.kind == "text":
            return {**made, "type": "message", "role": "assistant", "content": content}
        made |= {"type": "reasoning", "summary": [], "content": content}
        if self.seals_reasoning:
            made["encrypted_content"] = seal(text)
        return made

    def _call(self, item: AnswerItem, text: str) -> Item:
        known = self.known.get(item.name)
        name = known.name if known else item.name
        made: Item = {"call_id": item.call_id, "name": name}
        if self.is_custom(item):
            return {
                "type": "custom_tool_call",
                **made,
                "input": custom_input(item.text) if text else "",
            }
        if known is not None and known.namespace:
            made["namespace"] = known.namespace
        return {"type": "function_call", **made, "arguments": text}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a response says beside its output: mostly the request, repeated."""

    id: str
    created_at: int
    model: str
    body: ResponsesRequest
    num_prompt_tokens: int
    advised: Mapping[str, float]
    """See `Services.advised`."""

    def response(
        self,
        status: Status,
        *,
        output: list[Item],
        usage: ResponsesUsage | None = None,
        error: TokenLightError | None = None,
    ) -> ResponseAnswer:
        body = self.body
        text: dict[str, Any] = {"format": (body.text and body.text.format) or {"type": "text"}}
        if body.text and body.text.verbosity:
            text["verbosity"] = body.text.verbosity
        return ResponseAnswer(
            id=self.id,
            created_at=self.created_at,
            status=status,
            error=ResponseFault(code=error.code, message=error.message) if error else None,
            incomplete_details=IncompleteDetails(reason="max_output_tokens")
            if status == "incomplete"
            else None,
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            model=self.model,
            output=output,
            parallel_tool_calls=body.parallel_tool_calls is not False,
            previous_response_id=body.previous_response_id,
            prompt_cache_key=body.prompt_cache_key,
            reasoning=body.reasoning or ReasoningField(),
            store=body.store is not False,
            temperature=self._number(body.temperature, "temperature"),
            text=text,
            tool_choice=body.tool_choice or "auto",
            tools=body.tools or [],
            top_p=self._number(body.top_p, "top_p"),
            usage=usage,
            user=body.user,
            metadata=body.metadata or {},
        )

    def ended(self, ended: Ended, items: ItemEncoder) -> ResponseAnswer:
        made = self.response(
            _status(ended),
            output=[items.closed(item) for item in ended.items],
            usage=self.usage(ended),
        )
        return msgspec.structs.replace(made, parse_failures=parse_failures(ended.failures))

    def _number(self, asked: float | None, name: str) -> float:
        return self.advised.get(name, 1.0) if asked is None else asked

    def usage(self, ended: Ended) -> ResponsesUsage:
        return ResponsesUsage(
            input_tokens=self.num_prompt_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=ended.num_cached_tokens),
            output_tokens=ended.num_sampled_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=ended.num_reasoning_tokens),
            total_tokens=self.num_prompt_tokens + ended.num_sampled_tokens,
        )


def _status(ended: Ended) -> Status:
    if ended.finish_reason == "abort":
        return "cancelled"
    return "incomplete" if ended.is_cut else "completed"


def answered_turn(ended: Ended) -> Turn:
    """What the assistant said, for the conversation that goes on from here."""
    parts: list[Part] = []
    for item in ended.items:
        if item.kind == "reasoning":
            parts.append(Reasoning(item.text))
        elif item.kind == "text":
            parts.append(Text(item.text))
        else:
            parts.append(ToolCall(item.call_id, item.name, item.text))
    return Turn("assistant", tuple(parts))
