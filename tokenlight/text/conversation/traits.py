# SPDX-License-Identifier: Apache-2.0
"""What a chat template can render, found out once by rendering small conversations with it.

Templates refuse what they do not know, or drop it without a word: both are seen here, at start, so
that a request is rendered straight, in the one way its template supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tokenlight.base.errors import InvalidRequest

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Names under which templates know an assistant's earlier reasoning."""


class Template(Protocol):
    """`ChatTemplate` is one."""

    @property
    def source(self) -> str | None:
        """Its text; None for a model that has none."""
        ...

    def alone(self, *, for_tools: bool) -> Template:
        """Of two, the one that is rendered where there are tools, or where there are none."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The defaults are those of a template that takes everything."""

    system: Literal["anywhere", "first", "never"] = "anywhere"
    """Where a system turn is rendered in its place, with all before it unchanged."""
    alternates: bool = False
    """Whether it refuses two turns of one role in a row."""
    has_tools: bool = True
    """Whether it renders tool definitions, calls and results."""
    takes_objects: bool = True
    """Whether a call's arguments may be an object."""
    takes_strings: bool = False
    """Whether a call's arguments may be a text, which is written through."""
    takes_any_id: bool = True
    """Whether it takes call ids of any form; otherwise nine letters and digits."""
    takes_parallel: bool = True
    """Whether an assistant's turn may hold several calls."""
    takes_text_with_calls: bool = True
    """Whether an assistant's text is rendered beside its calls, not dropped."""
    reasoning_key: str | None = None
    """Under which name it renders an assistant's reasoning, where it does."""


PLAINEST = Traits(system="never", alternates=True, has_tools=False)
"""Only user and assistant in turn, and texts: what every template can render."""

# Words that no template has of its own.
_S, _L, _U, _A, _T, _K, _V, _R, _Q, _THOUGHT = (f"Zq{letter}w" for letter in "sluatkvrqh")
_NINE, _OTHER_NINE = "zqidw0001", "zqidw0002"
_LONG, _OTHER_LONG = "call_zqidw00000000000000001", "call_zqidw00000000000000002"
_TOOL = {
    "type": "function",
    "function": {
        "name": _T,
        "description": _T,
        "parameters": {"type": "object", "properties": {_K: {"type": "string"}}},
    },
}


def read_traits(template: Template) -> Traits:
    """Probe `template`, one alone. If it cannot render a single user turn: `PLAINEST`."""
    probe = _Probe(template)
    if not probe.shows([_user(_U)], _U):
        return PLAINEST
    system = _system(probe)
    alternates = not probe.shows([_user(_U), _user(_Q)], _U, _Q)
    plain = Traits(
        system=system, alternates=alternates, has_tools=False, reasoning_key=_reasoning_key(probe)
    )
    return _tools(probe, plain)


class _Probe:
    def __init__(self, template: Template) -> None:
        self._template = template

    def render(
        self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None
    ) -> str | None:
        try:
            return self._template.render(messages, tools=tools, add_generation_prompt=False)
        except InvalidRequest:
            return None

    def shows(
        self,
        messages: list[dict[str, Any]],
        *words: str,
        tools: list[dict[str, Any]] | None = None,
    ) -> bool:
        """Whether it renders them with all `words`, in this order."""
        text = self.render(messages, tools=tools)
        at = 0
        for word in words:
            at = -1 if text is None else text.find(word, at)
            if at < 0:
                return False
            at += len(word)
        return True

    def extends(self, shorter: list[dict[str, Any]], longer: list[dict[str, Any]]) -> bool:
        """Whether all that the shorter one renders to is the beginning of the longer one."""
        before, after = self.render(shorter), self.render(longer)
        return before is not None and after is not None and after.startswith(before.rstrip())


def _system(probe: _Probe) -> Literal["anywhere", "first", "never"]:
    head = [_says("system", _S), _user(_U)]
    if not probe.shows(head, _S, _U):
        return "never"
    late, more = _says("system", _L), [*head, _says("assistant", _A)]
    between, last = [*more, late, _user(_Q)], [*more, _user(_Q), late]
    is_anywhere = (
        probe.shows(between, _S, _U, _A, _L, _Q)
        and probe.shows(last, _S, _U, _A, _Q, _L)
        and probe.extends(head, between)
        and probe.extends(head, last)
    )
    return "anywhere" if is_anywhere else "first"


def _reasoning_key(probe: _Probe) -> str | None:
    for key in REASONING_KEYS:
        said = {**_says("assistant", _A), key: _THOUGHT}
        called = {**_calling(_LONG), key: _THOUGHT}
        for last in ([said], [called, _result(_LONG)], [{**_calling(_NINE), key: _THOUGHT}]):
            if probe.shows([_user(_U), *last], _U, _THOUGHT, tools=[_TOOL]):
                return key
    return None


def _tools(probe: _Probe, plain: Traits) -> Traits:
    """`plain` with what the template can do with tools, or itself where it knows none."""
    if not probe.shows([_user(_U)], _T, tools=[_TOOL]):
        return plain
    for takes_any_id, id, other_id in ((True, _LONG, _OTHER_LONG), (False, _NINE, _OTHER_NINE)):
        takes_objects, takes_strings = _renders_call(probe, id, {_K: _V}), False
        written = probe.render(_exchange(id, f'{{"{_K}": "{_V}"}}'), tools=[_TOOL])
        if written is not None and f'{{"{_K}": "{_V}"}}' in written.replace(_definition(probe), ""):
            takes_strings = True
        if takes_objects or takes_strings:
            arguments = {_K: _V} if takes_objects else f'{{"{_K}": "{_V}"}}'
            both = _calling(id, arguments)
            both["tool_calls"] += _calling(other_id, arguments)["tool_calls"]
            speaking = {**_calling(id, arguments), "content": _A}
            return Traits(
                system=plain.system,
                alternates=plain.alternates,
                takes_objects=takes_objects,
                takes_strings=takes_strings,
                takes_any_id=takes_any_id,
                takes_parallel=probe.shows(
                    [_user(_U), both, _result(id), _result(other_id)],
                    _U, _V, _V, _R, _R,
                    tools=[_TOOL],
                ),
                takes_text_with_calls=probe.shows(
                    [_user(_U), speaking, _result(id)], _U, _A, _V, _R, tools=[_TOOL]
                ),
                reasoning_key=plain.reasoning_key,
            )  # fmt: skip
    return plain


def _definition(probe: _Probe) -> str:
    """What the tool's definition alone adds: a call is looked for outside it."""
    return probe.render([_user(_U)], tools=[_TOOL]) or "\0"


def _renders_call(probe: _Probe, id: str, arguments: Any) -> bool:
    """Whether a call's name, key and value appear, and not as Python would print them."""
    messages = _exchange(id, arguments)
    text = probe.render(messages, tools=[_TOOL])
    return (
        probe.shows(messages, _U, _T, _K, _V, _R, tools=[_TOOL])
        and text is not None
        and f"'{_K}'" not in text
    )


def _exchange(id: str, arguments: Any) -> list[dict[str, Any]]:
    return [_user(_U), _calling(id, arguments), _result(id)]


def _says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _user(text: str) -> dict[str, Any]:
    return _says("user", text)


def _calling(id: str, arguments: Any = None) -> dict[str, Any]:
    function = {"name": _T, "arguments": {_K: _V} if arguments is None else arguments}
    call = {"id": id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "name": _T, "content": _R}
