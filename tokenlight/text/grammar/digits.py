# SPDX-License-Identifier: Apache-2.0
"""Numbers in JSON that end: how many digits have been written in a row.

JSON bounds no number, and a weak model that has begun one can go on with digits until its tokens
are spent.
"""

from __future__ import annotations

import re

MAX_DIGITS = 20
"""In a row: every 64-bit integer, and more than a double can hold."""

_STRING_PART = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*(\\?)("?)', re.DOTALL)
_TAIL = re.compile(rb"\d*\Z")


class DigitRun:
    """Follows JSON as it is written. Digits inside strings do not count."""

    def __init__(self) -> None:
        self._num_digits = 0
        self._is_in_string = False
        self._is_escaped = False

    @property
    def is_long(self) -> bool:
        return self._num_digits >= MAX_DIGITS

    def say(self, text: bytes) -> None:
        if self._is_in_string:
            self._say_in_string(text)
            return
        quote = text.find(b'"')
        if quote >= 0:
            self._num_digits, self._is_in_string = 0, True
            self._say_in_string(text[quote + 1 :])
            return
        found = _TAIL.search(text)
        assert found is not None
        num_digits = len(found[0])
        is_all = num_digits == len(text)
        self._num_digits = num_digits + (self._num_digits if is_all else 0)

    def _say_in_string(self, text: bytes) -> None:
        if self._is_escaped and text:
            text, self._is_escaped = text[1:], False
        part = _STRING_PART.match(text)
        assert part is not None
        self._is_escaped = bool(part[1])
        if part[2]:
            self._is_in_string = False
            self.say(text[part.end() :])
