# SPDX-License-Identifier: Apache-2.0
"""An answer as a row of items: reasoning, texts and calls, in the order that the model wrote them.

Messages call them content blocks, Responses output items. A stream tells how they open, grow and
close; an answer in one piece has the same items, closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tokenlight.text.parsing.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Content,
    Event,
    ParseFailed,
    Reasoning,
)

Kind: TypeAlias = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class Item:
    index: int
    kind: Kind
    call_id: str = ""
    name: str = ""
    """Of the tool that is called."""
    is_complete: bool = True
    """False for what was cut off, and for a call that is broken or is being written."""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The reasoning, the text, or the call's arguments."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Opened:
    item: Item


@dataclass(frozen=True, slots=True)
class Grew:
    item: Item
    delta: str


@dataclass(frozen=True, slots=True)
class Closed:
    item: Item


Change: TypeAlias = Opened | Grew | Closed


class Itemizer:
    """Parser events in, changes of items out. One item is open at a time."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.failures: list[ParseFailed] = []
        self._open_item: Item | None = None

    def push(self, events: Iterable[Event]) -> list[Change]:
        changes: list[Change] = []
        for event in events:
            match event:
                case Content(text):
                    self._say("text", text, changes)
                case Reasoning(text):
                    self._say("reasoning", text, changes)
                case CallStarted(_, id, name):
                    self._open("call", changes, call_id=id, name=name).is_complete = False
                case ArgumentsDelta(_, text):
                    self._grow(text, changes)
                case CallEnded(_, is_complete):
                    self.items[-1].is_complete = is_complete
                    self._close(changes)
                case ParseFailed():
                    self.failures.append(event)
                    # What could not be read is shown, so that nobody wonders where it went; of what
                    # max_tokens cut, the finish reason says that.
                    if event.visible and event.reason != "truncated":
                        self._say("text", event.visible, changes)
        return changes

    def finish(self, *, is_cut: bool) -> list[Change]:
        changes: list[Change] = []
        if is_cut and self._open_item is not None:
            self._open_item.is_complete = False
        self._close(changes)
        return changes

    def keep(self, last: Item) -> None:
        """Forget what came after `last`."""
        del self.items[last.index + 1 :]
        self._open_item = None

    @property
    def is_thinking(self) -> bool:
        return self._open_item is not None and self._open_item.kind == "reasoning"

    def _say(self, kind: Kind, text: str, changes: list[Change]) -> None:
        if self._open_item is None or self._open_item.kind != kind:
            self._open(kind, changes)
        self._grow(text, changes)

    def _open(
        self, kind: Kind, changes: list[Change], *, call_id: str = "", name: str = ""
    ) -> Item:
        self._close(changes)
        item = Item(len(self.items), kind, call_id, name)
        self.items.append(item)
        self._open_item = item
        changes.append(Opened(item))
        return item

    def _grow(self, text: str, changes: list[Change]) -> None:
        item = self.items[-1]
        item.pieces.append(text)
        changes.append(Grew(item, text))

    def _close(self, changes: list[Change]) -> None:
        if self._open_item is not None:
            changes.append(Closed(self._open_item))
            self._open_item = None
