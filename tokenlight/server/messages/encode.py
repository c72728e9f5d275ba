# SPDX-License-Identifier: Apache-2.0
"""An answer in the Messages protocol: in one piece, or as the events of a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenlight.base.errors import TokenLightError
from tokenlight.server.answer.answer import Began, Ended, Happening
from tokenlight.server.answer.items import Closed, Grew, Item, Opened
from tokenlight.server.decoding.sealed import seal
from tokenlight.server.messages.errors import failure_event
from tokenlight.server.messages.schema import (
    Block,
    MessageAnswer,
    MessagesUsage,
    StopReason,
    StreamEvent,
)
from tokenlight.server.schemas.parse_failure import parse_failures
from tokenlight.text.conversation import spelled_object

_encode = msgspec.json.Encoder().encode


def stop_reason(ended: Ended) -> StopReason:
    if ended.is_cut:
        return "max_tokens"
    if ended.has_calls_to_run:
        return "tool_use"
    return "end_turn" if ended.matched_stop is None else "stop_sequence"


def message_answer(
    id: str, model: str, ended: Ended, *, num_prompt_tokens: int, shows_thinking: bool
) -> MessageAnswer:
    return MessageAnswer(
        id=id,
        model=model,
        content=[_block(item, shows_thinking=shows_thinking) for item in ended.items],
        stop_reason=stop_reason(ended),
        stop_sequence=ended.matched_stop,
        usage=_usage(num_prompt_tokens, ended.num_cached_tokens, ended.num_sampled_tokens),
        parse_failures=parse_failures(ended.failures),
    )


def _block(item: Item, *, shows_thinking: bool) -> Block:
    if item.kind == "reasoning":
        thinking = item.text if shows_thinking else ""
        return {"type": "thinking", "thinking": thinking, "signature": seal(item.text)}
    if item.kind == "text":
        return {"type": "text", "text": item.text}
    block: Block = {"type": "tool_use", "id": item.call_id, "name": item.name}
    block["input"] = spelled_object(item.text) or {}
    # An input that is cut off is no input: the mark says that this call must not be run.
    return block if item.is_complete else {**block, "incomplete": True, "partial_json": item.text}


def _usage(
    num_prompt_tokens: int, num_cached_tokens: int, num_sampled_tokens: int
) -> MessagesUsage:
    return MessagesUsage(
        input_tokens=num_prompt_tokens - num_cached_tokens,
        cache_read_input_tokens=num_cached_tokens,
        output_tokens=num_sampled_tokens,
    )


class MessagesStream:
    """The events of one answer; also what the stream says when there is nothing to tell."""

    def __init__(
        self, id: str, model: str, *, num_prompt_tokens: int, shows_thinking: bool
    ) -> None:
        self._id = id
        self._model = model
        self._num_prompt_tokens = num_prompt_tokens
        self._shows_thinking = shows_thinking

    def keep_alive(self) -> bytes:
        return _event(StreamEvent(type="ping"))

    def failure(self, error: TokenLightError) -> bytes:
        return failure_event(error)

    def event(self, happening: Happening) -> bytes:
        match happening:
            case Began(num_cached_tokens):
                return self._start(num_cached_tokens)
            case Opened(item):
                return self._open(item)
            case Grew(item, delta):
                return self._grow(item, delta)
            case Closed(item):
                return self._close(item)
            case Ended():
                return self._end(happening)

    def _start(self, num_cached_tokens: int) -> bytes:
        message = MessageAnswer(
            id=self._id,
            model=self._model,
            content=[],
            stop_reason=None,
            stop_sequence=None,
            usage=_usage(self._num_prompt_tokens, num_cached_tokens, 0),
        )
        return _event(StreamEvent(type="message_start", message=message))

    def _open(self, item: Item) -> bytes:
        block: Block
        if item.kind == "call":
            block = {"type": "tool_use", "id": item.call_id, "name": item.name, "input": {}}
        elif item.kind == "reasoning":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        else:
            block = {"type": "text", "text": ""}
        return _event(
            StreamEvent(type="content_block_start", index=item.index, content_block=block)
        )

    def _grow(self, item: Item, delta: str) -> bytes:
        if item.kind == "call":
            return _delta(item, type="input_json_delta", partial_json=delta)
        if item.kind == "text":
            return _delta(item, type="text_delta", text=delta)
        if not self._shows_thinking:
            return b""
        return _delta(item, type="thinking_delta", thinking=delta)

    def _close(self, item: Item) -> bytes:
        signature = b""
        if item.kind == "reasoning":
            signature = _delta(item, type="signature_delta", signature=seal(item.text))
        return signature + _event(StreamEvent(type="content_block_stop", index=item.index))

    def _end(self, ended: Ended) -> bytes:
        delta = {"stop_reason": stop_reason(ended), "stop_sequence": ended.matched_stop}
        usage = _usage(self._num_prompt_tokens, ended.num_cached_tokens, ended.num_sampled_tokens)
        last = StreamEvent(
            type="message_delta",
            delta=delta,
            usage=usage,
            parse_failures=parse_failures(ended.failures),
        )
        return _event(last) + _event(StreamEvent(type="message_stop"))


def _delta(item: Item, **delta: Any) -> bytes:
    return _event(StreamEvent(type="content_block_delta", index=item.index, delta=delta))


def _event(event: StreamEvent) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))
