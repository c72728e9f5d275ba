# SPDX-License-Identifier: Apache-2.0
"""Rules for an answer, in llguidance's Lark: of one shape, or of calls that are forced.

JSON is written as chat templates write it, `{"a": 1, "b": 2}`: no white space that a model could
fill with for ever, and the same tokens when the call comes back as history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenlight.base.errors import UnsupportedParameter
from tokenlight.text.conversation import Conversation, Shape, Tool
from tokenlight.text.parsing import ToolFormat

_MAX_CALLS = 16
"""Of one answer that must call: a weak model would go on for ever."""

_FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def rules_of(conversation: Conversation, tools: ToolFormat) -> str | None:
    """The rules that the answer must follow; None where it is free.

    Raises:
        UnsupportedParameter: calls cannot be forced in this model's format.
    """
    choice, shape = conversation.tool_choice, conversation.shape
    named = [t for t in conversation.tools if not choice.names or t.name in choice.names]
    allows_parallel = conversation.allows_parallel
    if choice.mode == "required" and named:
        return "start: calls\n" + _call_rules(named, tools, allows_parallel=allows_parallel)
    if shape is None:
        return None
    if choice.mode == "none" or not named or tools.frame is None:
        return "start: shape\n" + _shape_rules(shape)
    calls = _call_rules(named, tools, allows_parallel=allows_parallel)
    return "start: shape | calls\n" + _shape_rules(shape) + calls


def _shape_rules(shape: Shape) -> str:
    if shape.regex is not None:
        return f"shape: {_regex(shape.regex)}\n"
    return f"shape: {_json(shape.json_schema or {}, lenient=False)}\n"


def _call_rules(tools: Sequence[Tool], wire: ToolFormat, *, allows_parallel: bool) -> str:
    """One call of one of `tools`, or several."""
    if wire.frame is None:
        raise UnsupportedParameter(
            "tool_choice",
            advice=f"send 'auto': calls in the {wire.name} format of this model cannot be forced",
        )
    before, after = wire.frame
    lines = [
        f"calls: call (gap call){{0,{_MAX_CALLS - 1}}}" if allows_parallel else "calls: call",
        'gap: "\\n"?',
        "call: " + " | ".join(f"call_{i}" for i in range(len(tools))),
    ]
    for i, tool in enumerate(tools):
        name = _dump(tool.name)[1:-1]
        opened, closed = before.replace("NAME", name), after.replace("NAME", name)
        close = f" {_dump(closed)}" if closed else ""
        lines.append(f"call_{i}: {_dump(opened)} arguments_{i}{close}")
        # Tools' schemas are strangers' work: what cannot be enforced in one is left to the model.
        lines.append(f"arguments_{i}: {_json(_object(tool.parameters), lenient=True)}")
    return "\n".join(lines) + "\n"


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments are an object, whether or not their schema says so."""
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _json(schema: dict[str, Any], *, lenient: bool) -> str:
    return f"%json {_dump({**schema, 'x-guidance': {**_FORM, 'lenient': lenient}})}"


def _regex(pattern: str) -> str:
    return "/" + pattern.replace("/", "\\/").replace("\n", "\\n") + "/"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
