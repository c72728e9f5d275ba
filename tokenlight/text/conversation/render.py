# SPDX-License-Identifier: Apache-2.0
"""A conversation as its model's template wants it: the messages, the tools, the prompt's text.

What a template cannot render in its own way is said in another (`traits.py` tells which):

    late system turn      where only the first may be one: a user's turn, in its place, in tags
    system turn           where none may be one: before the first user's text
    tools, calls, results where the template knows none: `tools_in_text.py`
    two turns of one role where they must alternate: one turn, a blank line between
    call ids              where nine characters are asked for: nine that follow from the id
    several calls         where one turn may hold one: a turn each, its result behind it
    text beside calls     where it would be dropped: a turn of its own, before the calls (unless
                          turns must alternate: then it is lost, as the template has it)

Each of these changes only the turn it is about, so the text of earlier turns stays what it was.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenlight.base.errors import InvalidRequest
from tokenlight.text.conversation.arguments import template_arguments
from tokenlight.text.conversation.tools_in_text import (
    describe_tools,
    tool_definition,
    write_call,
    write_result,
)
from tokenlight.text.conversation.traits import PLAINEST, Template, Traits
from tokenlight.text.conversation.turns import Conversation, Text, ToolResult, Turn

_LATE_OPEN, _LATE_CLOSE = "<system-message>\n", "\n</system-message>"
_CUT = "\ue000cut\ue000"


@dataclass(frozen=True, slots=True)
class Rendering:
    """What goes into the template."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    variables: dict[str, Any]


def render_text(template: Template, traits: Traits, conversation: Conversation) -> str:
    """The prompt.

    Raises:
        InvalidRequest: there is no turn, or the template refuses even the plainest form.
    """
    if not conversation.turns:
        raise InvalidRequest(
            "the conversation is empty: it must have at least 1 message", param="messages"
        )
    try:
        return _text(template, make_rendering(traits, conversation), conversation)
    except InvalidRequest:
        if traits == PLAINEST:
            raise
        # A refusal that no probe foresaw.
        return _text(template, make_rendering(PLAINEST, conversation), conversation)


def _text(template: Template, made: Rendering, conversation: Conversation) -> str:
    if not conversation.continues_last:
        return template.render(
            made.messages,
            tools=made.tools,
            add_generation_prompt=conversation.opens_answer,
            **made.variables,
        )
    # The last turn stays open: rendered with a mark at its end, cut there.
    *before, last = made.messages
    marked = {**last, "content": last["content"].rstrip() + _CUT}
    text = template.render(
        [*before, marked], tools=made.tools, add_generation_prompt=False, **made.variables
    )
    return text[: text.rindex(_CUT)] if _CUT in text else text


def make_rendering(traits: Traits, conversation: Conversation) -> Rendering:
    """The messages, tools and variables that this template gets for this conversation."""
    has_tools = traits.has_tools and bool(conversation.tools)
    messages = list(_messages(traits, conversation)) or [{"role": "user", "content": ""}]
    if traits.alternates:
        messages = list(_alternating(messages))
    return Rendering(
        messages,
        [tool_definition(tool) for tool in conversation.tools] if has_tools else None,
        _variables(conversation),
    )


def _messages(traits: Traits, conversation: Conversation) -> Iterator[dict[str, Any]]:
    num_head = next(
        (i for i, turn in enumerate(conversation.turns) if turn.role != "system"),
        len(conversation.turns),
    )
    head = [turn.text for turn in conversation.turns[:num_head]]
    if conversation.tools and not traits.has_tools:
        head.append(describe_tools(conversation.tools))
    system = "\n\n".join(filter(None, head))
    turns = conversation.turns[num_head:]
    if system and traits.system == "never":
        turns = _with_system_in_user(system, turns)
    elif system:
        yield {"role": "system", "content": system}
    for turn in turns if traits.takes_parallel else _one_call_each(turns):
        yield from _turn(traits, turn)


def _turn(traits: Traits, turn: Turn) -> Iterator[dict[str, Any]]:
    match turn.role:
        case "system" if traits.system != "anywhere":
            text = f"{_LATE_OPEN}{turn.text}{_LATE_CLOSE}"
            yield {"role": "user", "content": text}
        case "system" | "user":
            yield {"role": turn.role, "content": turn.text}
        case "assistant" if _loses_text(traits, turn):
            said = tuple(part for part in turn.parts if part not in turn.calls)
            yield _assistant(traits, Turn("assistant", said))
            yield _assistant(traits, Turn("assistant", turn.calls))
        case "assistant":
            yield _assistant(traits, turn)
        case "tool":
            for result in turn.results:
                yield _result(traits, result)


def _loses_text(traits: Traits, turn: Turn) -> bool:
    return (
        traits.has_tools
        and not traits.takes_text_with_calls
        and not traits.alternates
        and bool(turn.text and turn.calls)
    )


def _with_system_in_user(system: str, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    if turns and turns[0].role == "user":
        text = f"{system}\n\n{turns[0].text}"
        return (Turn("user", (Text(text),)), *turns[1:])
    return (Turn("user", (Text(system),)), *turns)


def _assistant(traits: Traits, turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.reasoning and traits.reasoning_key is not None:
        message[traits.reasoning_key] = turn.reasoning
    if not turn.calls:
        return message
    if not traits.has_tools:
        written = [turn.text, *map(write_call, turn.calls)]
        return {**message, "content": "\n".join(filter(None, written))}
    message["tool_calls"] = [
        {
            "id": _call_id(traits, call.id),
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": template_arguments(
                    call.arguments,
                    takes_objects=traits.takes_objects,
                    takes_strings=traits.takes_strings,
                ),
            },
        }
        for call in turn.calls
    ]
    return message


def _result(traits: Traits, result: ToolResult) -> dict[str, Any]:
    if not traits.has_tools:
        return {"role": "user", "content": write_result(result)}
    return {
        "role": "tool",
        "tool_call_id": _call_id(traits, result.call_id),
        "name": result.name,
        "content": result.text,
    }


def _call_id(traits: Traits, id: str) -> str:
    if traits.takes_any_id or (len(id) == 9 and id.isascii() and id.isalnum()):
        return id
    digest = hashlib.blake2b(id.encode("utf-8", "replace"), digest_size=8).digest()
    return base64.b32encode(digest).decode().lower()[:9]


def _one_call_each(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Turns with several calls, each call as a turn of its own with its result behind it."""
    listed = list(turns)
    results = {result.call_id: result for turn in listed for result in turn.results}
    given: set[str] = set()
    for turn in listed:
        if len(turn.calls) < 2:
            kept = tuple(
                p for p in turn.parts if not (isinstance(p, ToolResult) and p.call_id in given)
            )
            if kept:
                yield Turn(turn.role, kept)
            continue
        first = tuple(part for part in turn.parts if part not in turn.calls)
        for call in turn.calls:
            yield Turn("assistant", (*first, call))
            first = ()
            if call.id in results:
                given.add(call.id)
                yield Turn("tool", (results[call.id],))


def _alternating(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Neighbours of one role joined; the conversation begins with the user."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or last["role"] == "system":
            if message["role"] == "assistant":
                joined.append({"role": "user", "content": ""})
            joined.append(message)
        elif message["role"] == last["role"] != "tool":
            joined[-1] = _joined(last, message)
        else:
            joined.append(message)
    if joined and joined[-1]["role"] == "system":
        joined.append({"role": "user", "content": ""})
    return iter(joined)


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {**first, **second}
    both["content"] = "\n\n".join(filter(None, (first["content"], second["content"])))
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return {**both, "tool_calls": calls} if calls else both


def _variables(conversation: Conversation) -> dict[str, Any]:
    """How much to think, by each name that templates know it by; the client's own words win."""
    wish = conversation.reasoning
    made: dict[str, Any] = {}
    if wish.is_on is not None:
        made |= {"enable_thinking": wish.is_on, "thinking": wish.is_on}
    if wish.effort is not None:
        made["reasoning_effort"] = wish.effort
    if wish.budget_tokens is not None:
        made["thinking_budget"] = wish.budget_tokens
    return made | conversation.variables
