# SPDX-License-Identifier: Apache-2.0
"""Reads literals that are not JSON (Python's, or a model's own) and passes them on as JSON."""

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache

from tokenlight.text.parsing.forms.json_call import escape
from tokenlight.text.parsing.source import Malformed, Pull, Source, Unfinished

Write = Callable[[str], None]

PYTHON_QUOTES = ('"', "'")
_WORD = re.compile(r"[\w.+-]*")
_WORD_CHARS = 512
_BARE_KEY = re.compile(r"[^:{}\[\](),=\s]*")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_WORDS = {
    "True": "true", "true": "true", "False": "false", "false": "false",
    "None": "null", "null": "null",
}  # fmt: skip
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0",
    "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": "",
}  # fmt: skip
_ESCAPED = re.compile(r'\\.|["\x00-\x1f]', re.DOTALL)
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_PREFIXES = frozenset({"r", "b", "u", "f"})
_DEPTH = 64
"""Nesting beyond this is `Malformed`: a reader is a stack of generators."""


@lru_cache(maxsize=16)
def _inside(quote: str, *, is_python: bool, is_raw: bool) -> re.Pattern[str]:
    """A run of a string's inside: all but its quote's first character and numbered escapes."""
    quote = re.escape(quote)
    if not is_python:
        return re.compile(rf"[^{quote}]++")
    return re.compile(rf"(?:[^{quote}\\]++|\\{'.' if is_raw else '[^xuU]'})++", re.DOTALL)


def _as_json(match: re.Match[str]) -> str:
    text = match.group()
    return escape(_ESCAPES.get(text[1], text) if len(text) == 2 else text)


class LiteralReader:
    """Reads one language's literals.

    Args:
        src: what to consume.
        write: takes the JSON text.
        quotes: what a string stands between.
        is_python: whether backslashes escape in strings, and three quotes are a mark.
    """

    def __init__(self, src: Source, write: Write, quotes: tuple[str, ...], *, is_python: bool):
        self._src = src
        self._write = write
        self._quotes = quotes
        self._is_python = is_python

    def value(self, depth: int = 0) -> Pull[None]:
        if depth > _DEPTH:
            raise Malformed("invalid_arguments")
        yield from self._src.space()
        if mark := (yield from self._quote()):
            yield from self._string(mark)
            return
        char = yield from self._src.need()
        if char in _CLOSERS:
            yield from self._container(char, depth)
        else:
            yield from self.word()

    def _quote(self) -> Pull[str]:
        """Consume the quotes that begin a string; "" where none does."""
        src = self._src
        mark = yield from src.starts(self._quotes)
        if not mark:
            return ""
        src.take(src.at + len(mark))
        if self._is_python:
            while src.text[src.at :] in ("", mark) and not src.is_ended:
                yield  # an empty string, or the beginning of three quotes
            if src.text.startswith(mark * 2, src.at):
                src.take(src.at + 2)
                return mark * 3
        return mark

    def _string(self, mark: str, *, is_raw: bool = False) -> Pull[None]:
        """Consume a string's inside and its closing quotes."""
        src = self._src
        inside = _inside(mark[0], is_python=self._is_python, is_raw=is_raw)
        self._write('"')
        while True:
            char = yield from src.need()
            if match := inside.match(src.text, src.at):
                piece = src.take(match.end())
                is_plain = is_raw or not self._is_python
                self._write(escape(piece) if is_plain else _ESCAPED.sub(_as_json, piece))
            elif char == "\\" and is_raw:
                yield from src.wait()
            elif char == "\\" and self._is_python:
                self._write((yield from self._code_point()))
            elif (yield from src.skip(mark)):
                self._write('"')
                return
            elif not src.is_ended or len(src.text) - src.at >= len(mark):
                self._write(escape(src.take(src.at + 1)))
            else:
                raise Unfinished

    def _code_point(self) -> Pull[str]:
        """Consume a backslash and the number of a character; returns it as JSON writes it."""
        src = self._src
        while len(src.text) - src.at < 2:
            yield from src.wait()
        if src.text[src.at + 1] not in _HEX_DIGITS:
            return ""  # the text was cut behind the backslash: it is an escape like any other
        length = 2 + _HEX_DIGITS[src.text[src.at + 1]]
        while len(src.text) - src.at < length:
            yield from src.wait()
        digits = src.text[src.at + 2 : src.at + length]
        try:
            code = int(digits, 16)
            decoded = escape(chr(code))
        except (ValueError, OverflowError):
            return escape(src.take(src.at + 2))
        src.take(src.at + length)
        return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else decoded

    def _container(self, opener: str, depth: int) -> Pull[None]:
        src, closer = self._src, _CLOSERS[opener]
        src.take(src.at + 1)
        self._write("{" if opener == "{" else "[")
        is_first = True
        while (yield from another_item(src, closer, is_first=is_first)):
            if not is_first:
                self._write(", ")
            is_first = False
            if opener == "{":
                yield from self.key()
            yield from self.value(depth + 1)
        self._write("}" if opener == "{" else "]")

    def key(self) -> Pull[None]:
        """Consume a key, quoted or bare, and its colon."""
        src = self._src
        if mark := (yield from self._quote()):
            yield from self._string(mark)
        else:
            self._write(f'"{escape((yield from src.run(_BARE_KEY, _WORD_CHARS)))}"')
        self._write(": ")
        yield from src.space()
        if (yield from src.need()) != ":":
            raise Malformed("invalid_arguments")
        src.take(src.at + 1)

    def word(self, word: str = "") -> Pull[None]:
        """Consume a constant or a number; `word` is what of it has been consumed before."""
        word += yield from self._src.run(_WORD, _WORD_CHARS)
        if word in _PREFIXES and (mark := (yield from self._quote())):
            yield from self._string(mark, is_raw=word == "r")
            return
        found = _WORDS.get(word) or _number(word)
        if found is None:
            raise Malformed("invalid_arguments")
        self._write(found)


def _number(word: str) -> str | None:
    """A Python number as JSON, kept as it is written where that is JSON already."""
    if _JSON_NUMBER.fullmatch(word):
        return word
    if not word.isascii():
        return None
    is_whole = word[:2].lower() == "0x" or not set(word) & set(".eE")
    try:
        number = int(word, 0) if is_whole else float(word)
    except ValueError:
        return None
    return json.dumps(number) if math.isfinite(number) else None


def python_as_json(text: str) -> str | None:
    """A whole Python literal as JSON; None where it is none."""
    src = Source()
    src.feed(text)
    src.is_ended = True
    pieces: list[str] = []
    try:
        for _ in LiteralReader(src, pieces.append, PYTHON_QUOTES, is_python=True).value():
            return None  # unreachable: an ended source never waits
    except Malformed:
        return None
    return "".join(pieces) if src.at == len(src.text) else None


def another_item(src: Source, closer: str, *, is_first: bool) -> Pull[bool]:
    """Whether an item begins here; takes the commas before it, or the closer behind the last."""
    while True:
        yield from src.space()
        char = yield from src.need()
        if char == closer or (char == "," and not is_first):
            src.take(src.at + 1)
            if char == closer:
                return False
        else:
            return True
