# SPDX-License-Identifier: Apache-2.0
"""A wire format as data: what a model writes around and inside a tool call, and around reasoning.

A *section* is what stands between an opener and a closer; it holds one call or several. A *form* is
how one call is written inside. There are four, each read by the module of its name; a format lists
those that it accepts. Harmony is not written in sections but in messages with headers: `Channels`.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCall:
    """`{"name": N, "arguments": {...}}`, alone or in a list; keys in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedCall:
    """A head that names the tool, then the arguments as a JSON object: `N<sep>{...}`."""

    open: str = ""
    """What stands before the head; "" where the section's opener does, for one call."""
    head: re.Pattern[str]
    """All between `open` and the arguments: groups `name` and, if the wire has one, `id`."""
    tail: tuple[str, ...] = ()
    """Markers after the arguments, in order; each may be missing, white space is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCall:
    """A name, then parameters in tags, their values as bare text typed by the tool's schema."""

    open: str = ""
    """What stands before the name; "" where the section's opener does, for one call."""
    after_name: str = ""
    parameter: str
    """What stands before a parameter's name."""
    head: re.Pattern[str]
    """All between `parameter` and `value_open`: group `name`, and `string` ("true" or "false")
    where the wire says itself whether the value is a string."""
    value_open: str
    value_close: str
    close: str
    padding: int = 0
    """Newlines around a value that are the wire's, not the value's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralCall:
    """`name(key=value, ...)` with Python literals, or `name{key:value, ...}`."""

    open: str = ""
    brackets: Literal["()", "{}"] = "()"
    quotes: tuple[str, ...] = ('"', "'")
    is_python: bool = True
    """Whether backslashes escape in strings, three quotes are a mark, keys are followed by "="."""
    known_only: bool = False
    """Whether any code may stand here, so that only a known tool's name makes it a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """Messages with headers: `<start>role<channel>name<message>text<end>`."""

    start: str
    channel: str
    message: str
    constrain: str
    ends: tuple[str, ...]
    reasoning: frozenset[str]
    """Names of the channels that hold reasoning."""
    namespace: str
    """Prefix of a recipient that is one of the request's tools."""


IdStyle: TypeAlias = Literal["call", "nine", "indexed"]
"""A call's id: call_<24 hex>, never the wire's; nine alphanumerics; functions.NAME:INDEX."""

Form: TypeAlias = JsonCall | HeadedCall | TaggedCall | LiteralCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """How a family of models writes tool calls."""

    name: str
    openers: tuple[str, ...] = ()
    """What begins a section. One of these and then no call is a parse failure."""
    quiet_openers: tuple[str, ...] = ()
    """What may begin a section and may be plain text: content unless it calls a known tool."""
    bare: Literal["never", "start", "line"] = "never"
    """Where a call to a known tool may stand without opener: where content starts; on any line."""
    closers: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()
    gap: int = 1
    """Newlines before an opener that the model's template puts there: no content."""
    strays: tuple[str, ...] = ()
    """Control tokens of the model that do not look like `<|...|>`: never content."""
    frame: tuple[str, str] | None = None
    """What a forced call's JSON arguments stand between, NAME for the tool's name."""
    id_style: IdStyle = "call"
    signs: tuple[tuple[str, ...], ...] = ()
    """Sets of strings; all of one set in a chat template tell the format."""
    channels: Channels | None = None

    def begins_call(self, opener: str) -> bool:
        """Whether an opener is itself a call's beginning, as where the outer tag is left out."""
        return any(not isinstance(form, JsonCall) and form.open == opener for form in self.forms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """How a family of models marks reasoning."""

    name: str
    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    padding: int = 1
    """Newlines inside the markers that are the wire's."""
    gap: int = 2
    """Newlines after the closer that are the wire's."""
    is_implied: bool = False
    """Whether output starts inside reasoning where the prompt is not known to say."""
    strays: tuple[str, ...] = ()
    """Tags around the answer, dropped."""
    signs: tuple[tuple[str, ...], ...] = ()
    """As in `ToolFormat`."""

    def is_open_in(self, prompt: str) -> bool:
        """Whether a rendered prompt ends by opening the reasoning, so that output starts inside."""
        return prompt.rstrip().endswith(self.openers)
