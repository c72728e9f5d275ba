# SPDX-License-Identifier: Apache-2.0
"""Chat messages as a conversation.

What becomes of messages:

    system, developer                a system turn, in its place
    user                             a user's turn; text parts are its lines
    assistant                        reasoning (in both spellings), text and tool calls, one turn
    tool, function                   ToolResult; a part that is no text is a remark

An image or file from the user is refused: the model reads text only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.server.openai_tools import CUSTOM_INPUT, KnownTool, decode_tool_choice
from tokenlight.server.schemas.chat import ChatRequest, Message
from tokenlight.server.shapes import decode_shape
from tokenlight.text.conversation import (
    Conversation,
    Part,
    Reasoning,
    ReasoningWish,
    Role,
    Shape,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

_TEXT_PARTS = ("text", "input_text", "output_text")
_UNSEEN = "[an image or file was here: this model reads text only]"
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
_ROLES: dict[str, Role] = {"developer": "system", "system": "system", "user": "user"}


def decode_conversation(body: ChatRequest, known: Mapping[str, KnownTool]) -> Conversation:
    """Read a body.

    Raises:
        InvalidRequest: a field cannot be used.
        UnsupportedParameter: a message has what this model cannot read.
    """
    return Conversation(
        turns=decode_messages(body.messages),
        tools=tuple(found.tool for found in known.values()),
        tool_choice=decode_tool_choice(body.tool_choice, known.values()),
        allows_parallel=body.parallel_tool_calls is not False,
        reasoning=_reasoning(body.reasoning_effort),
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


def decode_messages(messages: Sequence[Message]) -> tuple[Turn, ...]:
    return tuple(_turn(f"messages[{i}]", message) for i, message in enumerate(messages))


def _turn(where: str, message: Message) -> Turn:
    if message.role in ("tool", "function"):
        text = "\n".join(_texts(where, message, is_result=True))
        return Turn("tool", (ToolResult(message.tool_call_id or "", text, message.name or ""),))
    texts = [Text(text) for text in _texts(where, message)]
    if message.role != "assistant":
        return Turn(_ROLES[message.role], tuple(texts or [Text("")]))
    reasoning = message.reasoning_content or message.reasoning
    parts: list[Part] = [Reasoning(reasoning)] if isinstance(reasoning, str) and reasoning else []
    parts += texts
    parts += [
        _call(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(message.tool_calls or ())
    ]
    return Turn("assistant", tuple(parts or [Text("")]))


def _texts(where: str, message: Message, *, is_result: bool = False) -> list[str]:
    if message.content is None or isinstance(message.content, str):
        return [message.content] if message.content else []
    texts: list[str] = []
    for i, part in enumerate(message.content):
        at = f"{where}.content[{i}]"
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXT_PARTS:
            if part.text is None:
                raise InvalidRequest(f"'{at}.text' must be a string", param=f"{at}.text")
            texts.append(part.text)
        elif is_result:
            # A session must not end because a tool took a picture.
            texts.append(_UNSEEN)
        else:
            raise UnsupportedParameter(
                f"{at}.type", advice=f"leave {part.type!r} out: this server reads text only"
            )
    return texts


def _call(where: str, call: object) -> ToolCall:
    if not isinstance(call, dict):
        raise InvalidRequest(f"{where!r} must be an object with a function", param=where)
    id = call.get("id")
    custom, function = call.get("custom"), call.get("function")
    if isinstance(custom, dict):
        arguments: object = {CUSTOM_INPUT: custom.get("input")}
        function = custom
    elif isinstance(function, dict):
        arguments = function.get("arguments")
    else:
        raise InvalidRequest(f"{where!r} must be an object with a function", param=where)
    written = arguments if isinstance(arguments, str) else _json(arguments or {})
    name = function.get("name")
    return ToolCall(
        id if isinstance(id, str) else "", name if isinstance(name, str) else "", written
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_IS_OFF = ("none", "minimal")
_EFFORTS = {"xhigh": "high", "max": "high"}


def _reasoning(effort: str | None) -> ReasoningWish:
    if effort is None:
        return ReasoningWish()
    if effort in _IS_OFF:
        return ReasoningWish(is_on=False)
    return ReasoningWish(is_on=True, effort=_EFFORTS.get(effort, effort))


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
            "'response_format' must be text, json_object, or json_schema with a "
            "json_schema.schema that is an object",
            param="response_format",
        )
    return Shape(json_schema=schema)
