# SPDX-License-Identifier: Apache-2.0
"""Chat messages, as OpenAI's clients write them, as turns.

What becomes of messages:

    system, developer                a system turn, in its place
    user                             a user's turn; text parts are its lines
    assistant                        reasoning (in its spellings), text, refusal and tool calls
                                     (tool_use parts too), one turn
    tool, function                   ToolResult

Of what is no text, an image or file leaves a remark in the assistant's and tools' messages, a part
of any other kind is left out and its kind told. From the user both are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.base.log import event, get_log
from tokenlight.text.conversation.arguments import written_arguments
from tokenlight.text.conversation.turns import (
    UNSEEN,
    UNSEEN_KINDS,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

_log = get_log("text")

CUSTOM_INPUT = "input"
"""The one argument of a custom tool: a text."""

MessageRole = Literal["system", "developer", "user", "assistant", "tool", "function"]

_TEXT_PARTS = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")
_CALL = "tool_use"
_SAID_BY = ("assistant", "tool", "function")
_ROLES: dict[str, Role] = {"developer": "system", "system": "system", "user": "user"}


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """`text`, or Responses' names of it; `refusal`. Of the assistant also `thinking`,
    `reasoning` and `tool_use`."""
    text: str | None = None
    refusal: str | None = None
    thinking: Any = None
    """Of the assistant, in a part of type `thinking`: a text, or text parts."""
    reasoning: Any = None
    """The same, in a part of type `reasoning`."""
    summary: Any = None
    """What is left of a thought whose words are not told: a text, or text parts."""
    id: Any = None
    """Of a call in a part of type `tool_use`, as are `name` and `input`."""
    name: Any = None
    input: Any = None


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


Ignore: TypeAlias = Callable[[str], object]
"""Told the kind of each part that has no words for the model."""


def read_messages(sent: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """Messages that no schema has seen yet.

    Raises:
        InvalidRequest: one is malformed; the text has its place.
        UnsupportedParameter: one of the user's has a part that is not text.
    """
    try:
        messages = msgspec.convert(sent, list[Message])
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        where = "messages" + path.rstrip("`")
        raise InvalidRequest(f"{where!r} cannot be used: {text}", param=where) from None
    return decode_messages(messages, lambda kind: _log.warning(event("part_left_out", kind=kind)))


def decode_messages(messages: Sequence[Message], ignore: Ignore) -> tuple[Turn, ...]:
    return tuple(_turn(f"messages[{i}]", message, ignore) for i, message in enumerate(messages))


def _turn(where: str, message: Message, ignore: Ignore) -> Turn:
    if message.role in ("tool", "function"):
        text = "\n".join(_texts(where, message, ignore))
        return Turn("tool", (ToolResult(message.tool_call_id or "", text, message.name or ""),))
    if message.role != "assistant":
        texts = [Text(text) for text in _texts(where, message, ignore)]
        return Turn(_ROLES[message.role], tuple(texts or [Text("")]))
    parts = _assistant_parts(where, message, ignore)
    calls = [
        _call(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(message.tool_calls or ())
    ]
    told = {call.id for call in calls}  # the parts may tell them again
    parts += [call for call in map(_call_of, _parts(message, _CALL)) if call.id not in told]
    parts += calls
    if message.function_call and not message.tool_calls:
        parts.append(_call(f"{where}.function_call", {"function": message.function_call}))
    return Turn("assistant", tuple(parts or [Text("")]))


def _parts(message: Message, *kinds: str) -> list[ContentPart]:
    parts = message.content if isinstance(message.content, list) else ()
    return [part for part in parts if part.type in kinds]


def _assistant_parts(where: str, message: Message, ignore: Ignore) -> list[Part]:
    """What was said and, by clients that keep it among the content, thought."""
    texts = _texts(where, message, ignore)
    if message.refusal and message.refusal not in texts:
        texts.append(message.refusal)
    reasoning = message.reasoning_content or message.reasoning
    if isinstance(reasoning, str) and reasoning:
        thoughts = [reasoning]  # the parts would tell it again
    else:
        thoughts = []
        for part in _parts(message, *_THOUGHTS):
            if thought := _thought(part):
                thoughts.append(thought)
            else:
                ignore(part.type)
    return [*map(Reasoning, thoughts), *map(Text, texts)]


def _thought(part: ContentPart) -> str:
    """In the first of its spellings that has words."""
    spellings = (part.thinking, part.reasoning, part.text, part.summary)
    return next(filter(None, map(_words, spellings)), "")


def _words(sent: object) -> str:
    """A text, or text parts, a line each."""
    if isinstance(sent, list):
        texts = (part.get("text") for part in sent if isinstance(part, dict))
        return "\n".join([text for text in texts if isinstance(text, str)])
    return sent if isinstance(sent, str) else ""


def _texts(where: str, message: Message, ignore: Ignore) -> list[str]:
    """The texts of a message, and remarks for what the assistant or a tool showed."""
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
        elif message.role == "assistant" and part.type in (*_THOUGHTS, _CALL):
            continue  # `_assistant_parts` and `_turn` have them
        elif message.role not in _SAID_BY:
            raise UnsupportedParameter(
                f"{at}.type", advice=f"leave {part.type!r} out: this server reads text only"
            )
        elif part.type.endswith(UNSEEN_KINDS):
            # A session must not end because a tool took a picture.
            texts.append(UNSEEN)
        else:
            ignore(part.type)
    return texts


def _call_of(part: ContentPart) -> ToolCall:
    return _named_call(part.id, part.name, part.input)


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
    return _named_call(id, function.get("name"), arguments)


def _named_call(id: object, name: object, arguments: object) -> ToolCall:
    return ToolCall(
        id if isinstance(id, str) else "",
        name if isinstance(name, str) else "",
        written_arguments(arguments),
    )
