# SPDX-License-Identifier: Apache-2.0
"""Messages as clients send them, made into what chat templates want, and into prompt token ids."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.text.conversation import Template
from tokenlight.text.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles that OpenAI's protocol knows."""

# Under which names clients send reasoning back, the usual one first.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_TEXT_PARTS = ("text", "input_text", "output_text")
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")


def chat_token_ids(
    tokenizer: Tokenizer,
    template: Template,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The prompt of a chat request.

    Args:
        tokenizer: the model's.
        template: the model's.
        messages: as the client sent them.
        tools: OpenAI's tool definitions; None for none.
        add_generation_prompt: whether to open the assistant's turn.
        variables: what else the template reads (`chat_template_kwargs`).

    Raises:
        InvalidRequest: a message is malformed, or the template refuses it.
        UnsupportedParameter: a message has a part that is not text.
    """
    for name in variables or ():
        if name in _RESERVED:
            raise InvalidRequest(
                f"chat_template_kwargs cannot set {name!r}: the request has a field for it",
                param=f"chat_template_kwargs.{name}",
            )
    text = template.render(
        normalise_messages(messages),
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        **(variables or {}),
    )
    # The template writes the begin-of-text token itself where the model wants one.
    return tokenizer.encode(text, parse_special=True, add_bos=False)


def normalise_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each message a role that templates know and one text; all else is kept.

    Text parts are joined with line ends, null is an empty text, `developer` is `system`, reasoning
    has the two names that templates read (`reasoning_content`, `thinking`), and the argument
    strings of tool calls become the objects that they spell (one that spells none stays).

    Raises:
        InvalidRequest: a message is malformed.
        UnsupportedParameter: a message has a part that is not text.
    """
    if not messages:
        raise InvalidRequest(
            "'messages' is empty: it must have at least 1 message", param="messages"
        )
    return [_message(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _message(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequest(
            f"{where}.role is {role!r}; it must be one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    normal = {key: value for key, value in message.items() if value is not None}
    normal["role"] = "system" if role == "developer" else role
    normal["content"] = _text(f"{where}.content", message.get("content"))
    reasoning = next((normal[name] for name in _REASONING if name in normal), None)
    if role == "assistant" and reasoning is not None:
        normal = {"thinking": reasoning, **normal, "reasoning_content": reasoning}
    if normal.get("tool_calls"):
        normal["tool_calls"] = [
            _tool_call(f"{where}.tool_calls[{i}]", call)
            for i, call in enumerate(normal["tool_calls"])
        ]
    return normal


def _text(where: str, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest(f"{where} must be a string, null or a list of parts", param=where)
    return "\n".join(_part(f"{where}[{i}]", part) for i, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"{where} must be an object with a type", param=where)
    kind = part.get("type")
    if kind not in _TEXT_PARTS:
        raise UnsupportedParameter(
            f"{where}.type", advice=f"leave {kind!r} out: this server reads text only"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"{where}.text must be a string", param=f"{where}.text")
    return text


def _tool_call(where: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidRequest(f"{where} must be an object with a function", param=where)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _arguments(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(text: str) -> Any:
    """The object that an argument string spells. Templates ask for an object's items."""
    try:
        spelled = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return spelled if isinstance(spelled, dict) else text
