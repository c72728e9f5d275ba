# SPDX-License-Identifier: Apache-2.0
"""A chat request as a conversation; its messages are read in `text/conversation/messages.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenlight.base.errors import InvalidRequest
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import KnownTool, decode_tool_choice
from tokenlight.server.decoding.shapes import decode_shape
from tokenlight.server.schemas.chat import ChatRequest
from tokenlight.server.schemas.describe import shown
from tokenlight.text.conversation import Conversation, ReasoningWish, Shape, decode_messages

_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")


def decode_conversation(
    body: ChatRequest, known: Mapping[str, KnownTool], notes: Notes
) -> Conversation:
    """Read a body; what is left out of it goes to `notes`.

    Raises:
        InvalidRequest: a field cannot be used.
        UnsupportedParameter: a message has what this model cannot read.
    """
    return Conversation(
        turns=decode_messages(body.messages, notes.ignore),
        tools=tuple(found.tool for found in known.values()),
        tool_choice=decode_tool_choice(body.tool_choice, known.values()),
        allows_parallel=body.parallel_tool_calls is not False,
        reasoning=ReasoningWish.of_effort(body.reasoning_effort),
        shape=_shape(body),
        opens_answer=body.add_generation_prompt is not False,
        variables=checked_variables(body.chat_template_kwargs),
    )


def checked_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """`chat_template_kwargs` that take no field's place.

    Raises:
        InvalidRequest: one does.
    """
    for name in variables or ():
        if name in _RESERVED:
            raise InvalidRequest(
                f"chat_template_kwargs cannot set {name!r}: the request has a field for it",
                param=f"chat_template_kwargs.{name}",
            )
    return dict(variables or {})


def _shape(body: ChatRequest) -> Shape | None:
    shape = decode_shape(body)
    asked = body.response_format
    if asked is None or asked.get("type") == "text":
        return shape
    if shape is not None:
        raise InvalidRequest(
            f"'response_format' and {shape.param!r} both say what the answer must look like; "
            f"send one",
            param="response_format",
        )
    if asked.get("type") == "json_object":
        return Shape(json_schema={"type": "object"})
    inner = asked.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if asked.get("type") != "json_schema" or not isinstance(schema, dict):
        raise InvalidRequest(
            f"'response_format' must be text, json_object, or json_schema with a "
            f"json_schema.schema that is an object, got {shown(asked)}",
            param="response_format",
        )
    return Shape(json_schema=schema)
