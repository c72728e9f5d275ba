# SPDX-License-Identifier: Apache-2.0
"""Which formats a model speaks, told from its own chat template and checked by a round trip."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol, TypeVar

from tokenlight.text.parsing.format import ReasoningFormat, ToolFormat
from tokenlight.text.parsing.formats import REASONING_FORMATS, TOOL_FORMATS
from tokenlight.text.parsing.formats.reasoning import DEEPSEEK_R1, NONE, QWEN3
from tokenlight.text.parsing.parser import parse

F = TypeVar("F", ToolFormat, ReasoningFormat)

_NAME = "look_up_order"
_ARGUMENTS: dict[str, Any] = {"city": 'Zürich, "old" town', "days": 3, "exact": True, "tags": ["a"]}
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer", "description": "how long"},
        "exact": {"type": "boolean", "description": "or nearly"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
    },
    "required": ["city"],
}
_TOOLS = [
    {
        "type": "function",
        "function": {"name": _NAME, "description": "Looks up.", "parameters": _PARAMETERS},
    }
]
_QUESTION: dict[str, Any] = {"role": "user", "content": "What of my order?"}


class Render(Protocol):
    """A chat template at work: messages in, prompt out; whatever it raises, it cannot do."""

    def __call__(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What became of a call that the model's own template rendered and this package parsed."""

    format: ToolFormat
    is_same: bool
    renders_calls: bool
    """False: the template says nothing of calls, so nothing could be checked."""
    reason: str = ""
    """Why not, for the log."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The formats to parse a model's output by, and how sure that is."""

    tools: ToolFormat
    reasoning: ReasoningFormat
    round_trip: RoundTrip


def detect(template_source: str) -> tuple[ToolFormat, ReasoningFormat]:
    """The formats a chat template's own text speaks of; "json" and "none" where it is silent."""
    tools = _first(TOOL_FORMATS, template_source) or TOOL_FORMATS["json"]
    reasoning = _first(REASONING_FORMATS, template_source) or NONE
    if reasoning is QWEN3 and _opens_reasoning(template_source):
        return tools, DEEPSEEK_R1
    return tools, reasoning


def _first(formats: dict[str, F], source: str) -> F | None:
    for format in formats.values():
        if any(all(sign in source for sign in signs) for signs in format.signs):
            return format
    return None


def _opens_reasoning(source: str) -> bool:
    """Whether the generation prompt always ends inside reasoning."""
    tail = source[source.rfind("add_generation_prompt") :]
    return "<think>" in tail and "</think>" not in tail


def round_trip(render: Render, format: ToolFormat) -> RoundTrip:
    """Render a call with the model's template, parse what it wrote, and compare."""
    tried = [_try(render, format, arguments) for arguments in (_ARGUMENTS, json.dumps(_ARGUMENTS))]
    best = [trip for trip in tried if trip.is_same] + [trip for trip in tried if trip.renders_calls]
    return (best or tried)[0]


def _try(render: Render, format: ToolFormat, arguments: Any) -> RoundTrip:
    """One round trip; templates want arguments as an object, or as its text."""
    try:
        text = _rendered(render, arguments)
    except Exception as error:  # a template is foreign code: whatever it raises, it cannot
        reason = f"the template raised {type(error).__name__}: {error}"
        return RoundTrip(format, is_same=False, renders_calls=False, reason=reason)
    if _NAME not in text:
        reason = "the template does not render tool calls"
        return RoundTrip(format, is_same=False, renders_calls=False, reason=reason)
    parsed = parse(text, format, NONE, functions={_NAME: _PARAMETERS})
    if len(parsed.calls) == 1 and not parsed.failures and parsed.calls[0].name == _NAME:
        got = parsed.calls[0].arguments
        reason = "" if _is_equal(got) else f"the arguments came back as {got}"
    else:
        reason = f"{len(parsed.calls)} calls, {len(parsed.failures)} failures in {text!r}"
    return RoundTrip(format, is_same=not reason, renders_calls=True, reason=reason)


def _rendered(render: Render, arguments: Any) -> str:
    """What the template writes for an assistant that calls a tool."""
    function = {"name": _NAME, "arguments": arguments}
    call = {"id": "a1b2c3d4e", "type": "function", "function": function}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    before = render([_QUESTION], tools=_TOOLS, add_generation_prompt=True)
    after = render([_QUESTION, answer], tools=_TOOLS, add_generation_prompt=False)
    num_same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    )
    same = after[:num_same]
    if same != before:  # never begin inside a marker: <think> and <tool_call> begin alike
        same = same[: max(map(same.rfind, ">]\n")) + 1]
    return after[len(same) :]


def _is_equal(arguments: str) -> bool:
    try:
        return bool(json.loads(arguments) == _ARGUMENTS)
    except json.JSONDecodeError:
        return False


def pick(template_source: str, render: Render) -> Picked:
    """The detected formats if the round trip passes, else the first tool format that passes it."""
    tools, reasoning = detect(template_source)
    first = round_trip(render, tools)
    if first.is_same or not first.renders_calls:
        return Picked(tools, reasoning, first)
    for other in _others(tools):
        tried = round_trip(render, other)
        if tried.is_same:
            return Picked(other, reasoning, tried)
    return Picked(tools, reasoning, first)


def _others(tools: ToolFormat) -> Iterator[ToolFormat]:
    return (format for format in TOOL_FORMATS.values() if format is not tools)
