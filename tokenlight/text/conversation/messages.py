# SPDX-License-Identifier: Apache-2.0
"""Chat messages, as OpenAI's clients write them, as turns.

What becomes of messages:

    system, developer                a system turn, in its place
    user                             a user's turn; text parts are its lines
    assistant                        reasoning (in its spellings), text or refusal and tool calls,
                                     one turn; a part that is none of these is a remark
    tool, function                   ToolResult; a part that is no text is a remark

An image or file from the user is refused: the model reads text only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.text.conversation.arguments import written_arguments
from tokenlight.text.conversation.turns import (
    UNSEEN,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

CUSTOM_INPUT = "input"
"""The one argument of a custom tool: a text."""

MessageRole = Literal["system", "developer", "user", "assistant", "tool", "function"]

_TEXT_PARTS = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")
_ROLES: dict[str, Role] = {"developer": "system", "system": "system", "user": "user"}


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """`text`, or Responses' names of it; `refusal`. What is no text is refused."""
    text: str | None = None
    refusal: str | None = None
    thinking: Any = None
    """Of the assistant, in a part of type `thinking`: a text, or text parts."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: MessageRole
    content: str | list[ContentPart] | None = None
    """Text parts are joined with newlines; null is an empty text."""
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    """Of functions or custom tools, as they were answered."""
    function_call: dict[str, Any] | None = None
    """A call as it was before tool_calls: of one function, without an id."""
    tool_call_id: str | None = None
    refusal: str | None = None
    """What the assistant said instead of its content."""
    reasoning_content: str | None = None
    """What the assistant thought, as it was answered."""
    reasoning: Any = None
    """The same, where it is a text."""


def read_messages(sent: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """Messages that no schema has seen yet.

    Raises:
        InvalidRequest: one is malformed; the text has its place.
        UnsupportedParameter: one has a part that is not text.
    """
    try:
        messages = msgspec.convert(sent, list[Message])
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        where = "messages" + path.rstrip("`")
        raise InvalidRequest(f"{where!r} cannot be used: {text}", param=where) from None
    return decode_messages(messages)


def decode_messages(messages: Sequence[Message]) -> tuple[Turn, ...]:
    return tuple(_turn(f"messages[{i}]", message) for i, message in enumerate(messages))


def _turn(where: str, message: Message) -> Turn:
    if message.role in ("tool", "function"):
        text = "\n".join(_texts(where, message, is_said=True))
        return Turn("tool", (ToolResult(message.tool_call_id or "", text, message.name or ""),))
    if message.role != "assistant":
        texts = [Text(text) for text in _texts(where, message)]
        return Turn(_ROLES[message.role], tuple(texts or [Text("")]))
    parts = _assistant_parts(where, message)
    parts += [
        _call(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(message.tool_calls or ())
    ]
    if message.function_call and not message.tool_calls:
        parts.append(_call(f"{where}.function_call", {"function": message.function_call}))
    return Turn("assistant", tuple(parts or [Text("")]))


def _assistant_parts(where: str, message: Message) -> list[Part]:
    """What was said and, by clients that keep it among the content, thought."""
    texts = _texts(where, message, is_said=True)
    if not texts and message.refusal:
        texts = [message.refusal]
    reasoning = message.reasoning_content or message.reasoning
    if isinstance(reasoning, str) and reasoning:
        thoughts = [reasoning]  # the parts would tell it again
    else:
        sent = message.content if isinstance(message.content, list) else ()
        thoughts = [_thought(part) for part in sent if part.type in _THOUGHTS]
    return [*map(Reasoning, filter(None, thoughts)), *map(Text, texts)]


def _thought(part: ContentPart) -> str:
    if isinstance(part.thinking, list):
        return "\n".join(
            inner["text"]
            for inner in part.thinking
            if isinstance(inner, dict) and isinstance(inner.get("text"), str)
        )
    return part.thinking if isinstance(part.thinking, str) else part.text or ""


def _texts(where: str, message: Message, *, is_said: bool = False) -> list[str]:
    """The texts of a message; `is_said`: by the assistant or a tool, so that nothing is refused."""
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
        elif part.type in _THOUGHTS and message.role == "assistant":
            continue  # `_assistant_parts` has it
        elif is_said:
            # A session must not end because a tool took a picture.
            texts.append(UNSEEN)
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
    written = written_arguments(arguments)
    name = function.get("name")
    return ToolCall(
        id if isinstance(id, str) else "", name if isinstance(name, str) else "", written
    )
