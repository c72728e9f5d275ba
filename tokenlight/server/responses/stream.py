# SPDX-License-Identifier: Apache-2.0
"""The events of a streamed response.

    response.created, response.in_progress
    per item: response.output_item.added
      text, reasoning: content_part.added, X_text.delta ..., X_text.done, content_part.done
      call:            function_call_arguments.delta ..., function_call_arguments.done
      custom call:     custom_tool_call_input.delta, custom_tool_call_input.done
    response.output_item.done
    response.completed | response.incomplete | response.failed

Every event has the next sequence number. While there is nothing to tell, response.in_progress is
repeated: clients that count events, not bytes, must see that we are there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenlight.base.errors import TokenLightError
from tokenlight.server.answer.answer import Began, Ended, Happening
from tokenlight.server.answer.items import Closed, Grew, Item, Opened
from tokenlight.server.responses.encode import Envelope, ItemEncoder
from tokenlight.server.responses.schema import ResponseAnswer, ResponsesEvent

_encode = msgspec.json.Encoder().encode
_STREAM_NAMES = {"text": "output_text", "reasoning": "reasoning_text"}


class ResponsesStream:
    """Happenings to events; also what the stream says when there is nothing to tell."""

    def __init__(self, envelope: Envelope, items: ItemEncoder) -> None:
        self._envelope = envelope
        self._items = items
        self._sequence_number = 0
        self._done: list[dict[str, Any]] = []

    def keep_alive(self) -> bytes:
        if self._sequence_number == 0:
            return self._begin()
        return self._event("response.in_progress", response=self._in_progress())

    def failure(self, error: TokenLightError) -> bytes:
        begin = self._begin() if self._sequence_number == 0 else b""
        failed = self._envelope.response("failed", output=self._done, error=error)
        return begin + self._event("response.failed", response=failed)

    def event(self, happening: Happening) -> bytes:
        match happening:
            case Began():
                return self._begin() if self._sequence_number == 0 else b""
            case Opened(item):
                return self._open(item)
            case Grew(item, delta):
                return self._grow(item, delta)
            case Closed(item):
                return self._close(item)
            case Ended():
                return self._end(happening)

    def _begin(self) -> bytes:
        return self._event("response.created", response=self._in_progress()) + self._event(
            "response.in_progress", response=self._in_progress()
        )

    def _in_progress(self) -> ResponseAnswer:
        return self._envelope.response("in_progress", output=[])

    def _open(self, item: Item) -> bytes:
        events = self._event(
            "response.output_item.added", output_index=item.index, item=self._items.opened(item)
        )
        if item.kind == "call":
            return events
        part = self._items.part(item, "")
        return events + self._of("response.content_part.added", item, content_index=0, part=part)

    def _grow(self, item: Item, delta: str) -> bytes:
        if item.kind == "text":
            return self._of(
                "response.output_text.delta", item, content_index=0, delta=delta, logprobs=[]
            )
        if item.kind == "reasoning":
            return self._of("response.reasoning_text.delta", item, content_index=0, delta=delta)
        if self._items.is_custom(item):
            return b""  # its text is inside the arguments: known once they are whole
        return self._of("response.function_call_arguments.delta", item, delta=delta)

    def _close(self, item: Item) -> bytes:
        closed = self._items.closed(item)
        self._done.append(closed)
        return self._close_content(item, closed) + self._event(
            "response.output_item.done", output_index=item.index, item=closed
        )

    def _close_content(self, item: Item, closed: dict[str, Any]) -> bytes:
        if self._items.is_custom(item):
            text = closed["input"]
            return self._of("response.custom_tool_call_input.delta", item, delta=text) + self._of(
                "response.custom_tool_call_input.done", item, input=text
            )
        if item.kind == "call":
            return self._of(
                "response.function_call_arguments.done",
                item,
                name=closed["name"],
                arguments=closed["arguments"],
            )
        fields: dict[str, Any] = {"content_index": 0, "text": item.text}
        if item.kind == "text":
            fields["logprobs"] = []
        part = self._items.part(item, item.text)
        return self._of(f"response.{_STREAM_NAMES[item.kind]}.done", item, **fields) + self._of(
            "response.content_part.done", item, content_index=0, part=part
        )

    def _end(self, ended: Ended) -> bytes:
        response = self._envelope.ended(ended, self._items)
        # The protocol has no event of its own for what was cancelled.
        kind = "completed" if response.status == "completed" else "incomplete"
        return self._event(f"response.{kind}", response=response)

    def _of(self, type: str, item: Item, **fields: Any) -> bytes:
        return self._event(type, item_id=self._items.id_of(item), output_index=item.index, **fields)

    def _event(self, type: str, **fields: Any) -> bytes:
        event = ResponsesEvent(type=type, sequence_number=self._sequence_number, **fields)
        self._sequence_number += 1
        return b"event: %b\ndata: %b\n\n" % (type.encode(), _encode(event))
