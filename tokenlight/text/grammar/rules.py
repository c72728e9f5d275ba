# SPDX-License-Identifier: Apache-2.0
"""Rules for an answer, in llguidance's Lark: of one shape, or of calls that are forced.

JSON is written as chat templates write it, `{"a": 1, "b": 2}`: no white space that a model could
fill with for ever, and the same tokens when the call comes back as history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenlight.base.errors import UnsupportedParameter
from tokenlight.text.conversation import Conversation, Shape, Tool
from tokenlight.text.grammar.forcing import bounded
from tokenlight.text.parsing import ReasoningFormat, ToolFormat
from tokenlight.text.parsing.format import HeadedCall, JsonCall

_MAX_CALLS = 16
"""Of one answer that must call: no model has that much to ask at once."""

_FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def rules_of(
    conversation: Conversation,
    tools: ToolFormat,
    reasoning: ReasoningFormat | None = None,
    special_ids: Mapping[str, int] | None = None,
    *,
    knows_calls: bool = True,
) -> str | None:
    """The rules that the answer must follow; None where it is free.

    Where one tool is named, the answer is one call of it.

    Args:
        conversation: with what it asks of its answer.
        tools: how this model writes calls.
        reasoning: how it marks reasoning.
        special_ids: the model's special tokens by their texts: a marker that is one is said as one.
        knows_calls: whether the model was taught to call: one that was not would call again and
            again until its tokens are spent, so it calls once.

    Raises:
        UnsupportedParameter: calls cannot be forced in this model's format.
    """
    choice, shape = conversation.tool_choice, conversation.shape
    named = [t for t in conversation.tools if not choice.names or t.name in choice.names]
    is_forced = choice.mode == "required" and bool(named)
    is_bound = bool(choice.names) or any(tool.is_strict for tool in named)
    if not is_forced and shape is None and (choice.mode != "auto" or not is_bound or not named):
        return None
    special_ids = special_ids or {}
    is_single = len(choice.names) == 1 or not knows_calls or not conversation.allows_parallel
    calls = _Calls(tools, special_ids, max_calls=1 if is_single else _MAX_CALLS)
    schemas = [tool.parameters for tool in named]
    if is_forced:
        return bounded("start: calls\n" + calls.rules(named), shape=None, schemas=schemas)
    if shape is None:
        # Free text has no special tokens: a model that marks reasoning by them must be left alone.
        marks = () if reasoning is None else (*reasoning.openers, *reasoning.closers)
        marked = None if any(mark in special_ids for mark in marks) else calls.marked(named)
        return None if marked is None else bounded(marked, shape=None, schemas=schemas)
    if choice.mode == "none" or not named or tools.frame is None or shape.lark is not None:
        return shape_rules(shape)
    rules = f"start: shape | calls\nshape: {_shape(shape)}\n{calls.rules(named)}"
    return bounded(rules, shape=shape, schemas=schemas)


def shape_rules(shape: Shape) -> str:
    """The rules of an answer that is nothing but this shape."""
    rules = shape.lark if shape.lark is not None else f"start: {_shape(shape)}\n"
    return bounded(rules, shape=shape)


def _shape(shape: Shape) -> str:
    if shape.regex is not None:
        return _regex(shape.regex)
    if shape.choice is not None:
        return " | ".join(map(_dump, shape.choice))
    return _json(shape.json_schema or {}, lenient=False)


class _Calls:
    """Writes the rules of calls in one model's format."""

    def __init__(self, wire: ToolFormat, special_ids: Mapping[str, int], *, max_calls: int) -> None:
        self._wire = wire
        self._special_ids = special_ids
        self._max_calls = max_calls
        markers = sorted((m for m in special_ids if m), key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, markers)) or '(?!)'})")

    def rules(self, tools: Sequence[Tool]) -> str:
        """`calls`: one call of one of `tools`, or several."""
        if self._wire.frame is None:
            raise UnsupportedParameter(
                "tool_choice",
                advice=f"send 'auto': calls in the {self._wire.name} format of this model cannot "
                f"be forced",
            )
        more = f" (gap call){{0,{self._max_calls - 1}}}" if self._max_calls > 1 else ""
        lines = [
            f"calls: call{more}",
            'gap: "\\n"?',
            *self._each(tools, self._wire.frame, opener=""),
        ]
        return "\n".join(lines) + "\n"

    def marked(self, tools: Sequence[Tool]) -> str | None:
        """Free text in which whatever begins like a call is one of a call of `tools`.

        None where that cannot be said: a format whose calls are not JSON behind an opener.
        """
        frame = self._wire.frame
        is_json = any(isinstance(form, (JsonCall, HeadedCall)) for form in self._wire.forms[:1])
        if frame is None or not is_json:
            return None
        opener = next((o for o in self._wire.openers if frame[0].startswith(o)), "")
        if not opener:
            return None
        is_special = opener in self._special_ids
        lines = [
            "start: marked* TEXT",
            "marked: opened call",
            f"opened: TEXT {self._literal(opener)}"
            if is_special
            else f"opened[lazy]: TEXT {_dump(opener)}",
            "TEXT: /(.|\\n)*/",
            *self._each(tools, frame, opener=opener),
        ]
        return "\n".join(lines) + "\n"

    def _each(self, tools: Sequence[Tool], frame: tuple[str, str], *, opener: str) -> Iterator[str]:
        """`call`: one of `tools`, behind the opener."""
        before, after = frame
        yield "call: " + " | ".join(f"call_{i}" for i in range(len(tools)))
        for i, tool in enumerate(tools):
            name = _dump(tool.name)[1:-1]
            opened = self._literal(before.removeprefix(opener).replace("NAME", name))
            closed = self._literal(after.replace("NAME", name))
            yield f"call_{i}: {opened} arguments_{i} {closed}".rstrip()
            # Strangers write these schemas: what cannot be enforced is left to the model.
            yield f"arguments_{i}: {_json(_object(tool.parameters), lenient=True)}"

    def _literal(self, text: str) -> str:
        """A text as it must be said: in its special tokens, where it names some."""
        return " ".join(
            f"<[{self._special_ids[part]}]>" if part in self._special_ids else _dump(part)
            for part in self._special.split(text)
            if part
        )


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments are an object, whether or not their schema says so."""
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _json(schema: dict[str, Any], *, lenient: bool) -> str:
    return f"%json {_dump({**schema, 'x-guidance': {**_FORM, 'lenient': lenient}})}"


def _regex(pattern: str) -> str:
    escaped = re.sub(r"\\.|/", lambda m: "\\/" if m[0] == "/" else m[0], pattern, flags=re.DOTALL)
    return "/" + escaped.replace("\n", "\\n") + "/"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
