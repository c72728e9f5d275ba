# SPDX-License-Identifier: Apache-2.0
"""Numbers in JSON that end and can be read: how many digits may still be written in a row.

JSON bounds no number, and a weak model that has begun one can go on with digits until its tokens
are spent; an exponent of three digits is infinity to most who read it.
"""

from __future__ import annotations

import re

MAX_DIGITS = 20
"""In a row: every 64-bit integer, and more than a double can hold."""
MAX_EXPONENT_DIGITS = 2

_STRING_PART = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*(\\?)("?)', re.DOTALL)
_NUMBER_END = re.compile(rb"([eE][+-]?)?(\d*)\Z")
_REACH = MAX_DIGITS + 2


class DigitRun:
    """Follows JSON as it is written. Digits inside strings do not count."""

    def __init__(self) -> None:
        self._tail = b""
        self._is_in_string = False
        self._is_escaped = False

    @property
    def room(self) -> int | None:
        """How many digits may come next, at most; None inside a string."""
        if self._is_in_string:
            return None
        found = _NUMBER_END.search(self._tail)
        assert found is not None
        most = MAX_EXPONENT_DIGITS if found[1] else MAX_DIGITS
        return max(most - len(found[2]), 0)

    def say(self, text: bytes) -> None:
        while text:
            if self._is_in_string:
                text = self._say_in_string(text)
                continue
            said, quote, text = text.partition(b'"')
            self._tail = (self._tail + said)[-_REACH:]
            if quote:
                self._tail, self._is_in_string = b"", True

    def _say_in_string(self, text: bytes) -> bytes:
        """What comes after the string, if it ends."""
        if self._is_escaped:
            text, self._is_escaped = text[1:], False
        part = _STRING_PART.match(text)
        assert part is not None
        self._is_escaped = bool(part[1])
        self._is_in_string = not part[2]
        return text[part.end() :]


def leading_digits(text: bytes) -> int:
    return len(text) - len(text.lstrip(b"0123456789"))
