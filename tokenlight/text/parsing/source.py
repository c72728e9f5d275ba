# SPDX-License-Identifier: Apache-2.0
"""Text that arrives in pieces, read as if it were all there.

A reader is a generator over a `Source`: it consumes what it has decided about and yields where the
answer needs text that has not come yet. What a reader consumes, and where it gives up, is a
function of the text alone, never of how it was cut; that is the whole proof of "streamed = whole".
"""

import re
from collections.abc import Generator
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

Pull: TypeAlias = Generator[None, None, T]
"""A reader: yields to wait for more text, returns a T."""

Reason = Literal[
    "not_a_call",  # an opener, and then nothing that this format calls a call
    "bad_name",  # no tool name where one must be, or one that no tool can have
    "invalid_arguments",  # arguments that are not one JSON object
    "unterminated",  # the output ended by itself inside a call
    "truncated",  # the output was cut (max_tokens) between a call's opener and its arguments
]

SPACE = re.compile(r"\s*")


class Malformed(Exception):
    """A reader gave up; `reason` is stable, a label of the counter of parse failures."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Unfinished(Malformed):
    """The output ended where a reader needed more."""

    def __init__(self) -> None:
        super().__init__("unterminated")


class Source:
    """The text not yet consumed is `text[at:]`; with a mark set, what is consumed is on `tape`."""

    __slots__ = ("_mark", "at", "is_cut", "is_ended", "tape", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.is_ended = False
        self.is_cut = False
        self.tape: list[str] | None = None
        self._mark = 0

    def feed(self, delta: str) -> None:
        self.text = self.text[self.at :] + delta if self.at < len(self.text) else delta
        self.at = 0

    def take(self, end: int) -> str:
        """Consume up to the offset `end` of `text`."""
        piece = self.text[self.at : end]
        self.at = end
        if self.tape is not None:
            self.tape.append(piece)
        return piece

    def mark(self) -> None:
        """Keep what is consumed: `taped` gives it since the last mark, `rewind` since the first."""
        if self.tape is None:
            self.tape = []
        self._mark = len(self.tape)

    def unmark(self) -> None:
        self.tape = None

    def taped(self) -> str:
        return "".join(self.tape[self._mark :]) if self.tape else ""

    def rewind(self) -> str:
        """Give back everything consumed since the first mark; returns it."""
        taped = "".join(self.tape or ())
        self.text = taped + self.text[self.at :]
        self.at = 0
        self.tape = None
        return taped

    def wait(self) -> Pull[None]:
        """Return once there is more text; the output's end is `Unfinished`."""
        if self.is_ended:
            raise Unfinished
        yield

    def peek(self) -> Pull[str]:
        """The next character, not consumed; "" at the output's end."""
        while self.at == len(self.text):
            if self.is_ended:
                return ""
            yield
        return self.text[self.at]

    def need(self) -> Pull[str]:
        """The next character, not consumed; the output's end is `Unfinished`."""
        found = yield from self.peek()
        if not found:
            raise Unfinished
        return found

    def run(self, pattern: re.Pattern[str], limit: int | None = None) -> Pull[str]:
        """Consume the longest run of a pattern that repeats one character class.

        Longer than `limit` is `Malformed`; without one, only the output bounds a run.
        """
        pieces: list[str] = []
        length = 0
        while True:
            match = pattern.match(self.text, self.at)
            end = match.end() if match else self.at
            if limit is not None and length + end - self.at > limit:
                self.take(self.at + limit - length)
                raise Malformed("bad_name")
            if end > self.at:
                length += end - self.at
                pieces.append(self.take(end))
            if self.at < len(self.text) or self.is_ended:
                return "".join(pieces)
            yield

    def space(self) -> Pull[None]:
        """Consume white space."""
        yield from self.run(SPACE)

    def newlines(self, most: int) -> Pull[None]:
        """Consume up to `most` newlines."""
        while most and (yield from self.peek()) == "\n":
            self.take(self.at + 1)
            most -= 1

    def starts(self, markers: tuple[str, ...]) -> Pull[str]:
        """Which of `markers` the text begins with, not consumed; "" for none.

        No marker may be the beginning of another.
        """
        while True:
            rest = len(self.text) - self.at
            may_come = False
            for marker in markers:
                if self.text.startswith(marker, self.at):
                    return marker
                if rest < len(marker) and marker.startswith(self.text[self.at :]):
                    may_come = True
            if not may_come or self.is_ended:
                return ""
            yield

    def skip(self, marker: str) -> Pull[bool]:
        """Consume `marker` if the text begins with it."""
        if not marker:
            return True
        if (yield from self.starts((marker,))):
            self.take(self.at + len(marker))
            return True
        return False

    def drop_cut(self, markers: tuple[str, ...]) -> None:
        """At the output's end: consume what is left if it is a marker cut off."""
        rest = self.text[self.at :]
        if self.is_ended and any(m.startswith(rest) and m != rest for m in markers):
            self.take(len(self.text))
