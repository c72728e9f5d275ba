# SPDX-License-Identifier: Apache-2.0
"""What a parser says of a model's output, in the order of the output, and the same as one value."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tokenlight.text.parsing.scan import without_control
from tokenlight.text.parsing.source import Reason


class Content(msgspec.Struct, frozen=True):
    """Text for the user."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text of the model's reasoning, without its markers."""

    text: str


class CallStarted(msgspec.Struct, frozen=True):
    """A call is certain: its opener, its name and the place of its arguments have been read."""

    index: int
    """0 for the output's first call."""
    id: str
    name: str


class ArgumentsDelta(msgspec.Struct, frozen=True):
    """More of a call's arguments. All deltas of an index, joined, are JSON text."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True):
    index: int
    is_complete: bool
    """Whether the arguments are one whole JSON object. False: cut off or broken; do not run it."""


class ParseFailed(msgspec.Struct, frozen=True):
    """The model began a call and did not make one. Never silent, never plain content."""

    parser: str
    """The tool format's name."""
    reason: Reason
    text: str
    """What was consumed from the opener on, "" where the call had started; the rest is content."""
    index: int | None = None
    """The call that is broken, where it had started."""

    @property
    def visible(self) -> str:
        """`text` as a user may see it: no control tokens."""
        return without_control(self.text)


Event: TypeAlias = Content | Reasoning | CallStarted | ArgumentsDelta | CallEnded | ParseFailed


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a finished output."""

    id: str
    name: str
    arguments: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole output: the same events, joined."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    failures: tuple[ParseFailed, ...]


class Collector:
    """Joins events as they come; time and memory are linear in the output."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[CallStarted] = []
        self._arguments: list[list[str]] = []
        self._complete: set[int] = set()
        self._failures: list[ParseFailed] = []

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Content():
                    self._content.append(event.text)
                case Reasoning():
                    self._reasoning.append(event.text)
                case CallStarted():
                    self._calls.append(event)
                    self._arguments.append([])
                case ArgumentsDelta():
                    self._arguments[event.index].append(event.text)
                case CallEnded():
                    if event.is_complete:
                        self._complete.add(event.index)
                case ParseFailed():
                    self._failures.append(event)

    def parsed(self) -> Parsed:
        return Parsed(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            calls=tuple(
                Call(call.id, call.name, "".join(arguments), call.index in self._complete)
                for call, arguments in zip(self._calls, self._arguments, strict=True)
            ),
            failures=tuple(self._failures),
        )
