# SPDX-License-Identifier: Apache-2.0
"""Reads JSON calls: the object around a call, and arguments passed through as they are written.

Arguments are copied byte for byte: only strings and depth are followed, to know where they end. One
repair is made: a raw control character inside a string, which no JSON reader accepts, is escaped.
"""

import json
import re
from collections.abc import Callable

from tokenlight.text.parsing.format import JsonCall
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.source import Malformed, Pull, Source

Write = Callable[[str], None]

_OUTSIDE = re.compile(r'[^"{}\[\]]*+')
_INSIDE = re.compile(r'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+')
_UNITS = re.compile(  # whole characters and escapes; half a surrogate pair is none
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[\da-fA-F]{4}'
    r"|\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})++"
)
_HALF = re.compile(r"\\u[dD][89a-fA-F][\da-fA-F]{2}")
_PAIR_CHARS = 12
_SCALAR = re.compile(r'[^\s,;:"\[\]{}]*')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_TEXT_CHARS = 1024
"""A name or a key longer than this is none."""

_NAME_KEYS = frozenset({"name", "function", "tool_name"})
_ARGUMENT_KEYS = frozenset({"arguments", "parameters"})
_ID_KEYS = frozenset({"id", "call_id"})
_OTHER_KEYS = frozenset({"type", "index", "tool_call_id"})


_encode = json.JSONEncoder(ensure_ascii=False).encode


def escape(text: str) -> str:
    """`text` as the inside of a JSON string."""
    return _encode(text)[1:-1]


def read_container(src: Source, write: Write) -> Pull[None]:
    """Consume one JSON object or array, passing its text on as it comes."""
    depth = 0
    in_string = False
    is_escaped = False  # the text ended behind a backslash
    while True:
        text, at = src.text, src.at
        if is_escaped and at < len(text):
            at += text[at] >= " "
            is_escaped = False
        while at < len(text):
            match = (_INSIDE if in_string else _OUTSIDE).match(text, at)
            at = match.end() if match else at
            char = text[at : at + 1]
            at += 1
            if char == '"':
                in_string = not in_string
            elif char == "\\":
                is_escaped = at == len(text)
            elif in_string and char:
                write(src.take(at - 1))
                src.take(at)
                write(escape(char))
            elif char:
                depth += 1 if char in "{[" else -1
                if depth == 0:
                    write(src.take(at))
                    return
        write(src.take(len(text)))
        yield from src.wait()


def read_string(src: Source, write: Write) -> Pull[None]:
    """Consume a JSON string, passing on what it stands for."""
    src.take(src.at + 1)
    while True:
        char = yield from src.need()
        if match := _UNITS.match(src.text, src.at):
            write(json.loads(f'"{src.take(match.end())}"', strict=False))
        elif char == '"':
            src.take(src.at + 1)
            return
        elif len(src.text) - src.at < _PAIR_CHARS and not src.is_ended:
            yield  # an escape that is not whole yet, or half a surrogate pair
        else:
            is_half = _HALF.match(src.text, src.at)
            piece = src.take(src.at + (6 if is_half else 1))
            write("\ufffd" if is_half else piece)


def read_text(src: Source) -> Pull[str]:
    """Consume a short JSON string (a key, a name) and return what it stands for."""
    while not (match := _STRING.match(src.text, src.at)):
        if len(src.text) - src.at > _TEXT_CHARS:
            raise Malformed("bad_name")
        yield from src.wait()
    if match.end() - src.at > _TEXT_CHARS:
        raise Malformed("bad_name")
    try:
        text: str = json.loads(match.group(), strict=False)
    except json.JSONDecodeError:
        raise Malformed("bad_name") from None
    src.take(match.end())
    return text


def read_value(src: Source, write: Write) -> Pull[None]:
    """Consume any JSON value; a string's text is what it stands for."""
    char = yield from src.need()
    if char in "{[":
        yield from read_container(src, write)
    elif char == '"':
        yield from read_string(src, write)
    else:
        write((yield from src.run(_SCALAR)))


def _ignore(_: str) -> None:
    return


class _CallObject:
    """One call's object under way: what its keys have said so far."""

    def __init__(self, src: Source, out: Output) -> None:
        self._src = src
        self._out = out
        self._name = ""
        self._id = ""
        self._early: list[str] = []  # arguments that came before the name
        self._has_arguments = False

    def read(self) -> Pull[None]:
        """Consume the object at hand. A call has started when its arguments have, or at its end."""
        yield from self._members()
        if not self._out.has_open_call:
            self._start()
            for piece in self._early:
                self._out.arguments(piece)
            self._out.end_arguments()
        self._out.end_call()

    def _members(self, *, is_nested: bool = False) -> Pull[None]:
        src = self._src
        src.take(src.at + 1)
        while True:
            yield from src.space()
            char = yield from src.need()
            if char == "}":
                src.take(src.at + 1)
                return
            if char == ",":
                src.take(src.at + 1)
            elif char == '"':
                yield from self._member(is_nested=is_nested)
            elif self._out.has_whole_arguments:
                return  # the object's own brace is missing
            else:
                raise Malformed("not_a_call")

    def _member(self, *, is_nested: bool) -> Pull[None]:
        src = self._src
        key = yield from read_text(src)
        yield from src.space()
        if (yield from src.need()) != ":":
            raise Malformed("not_a_call")
        src.take(src.at + 1)
        yield from src.space()
        char = yield from src.need()
        if key == "function" and char == "{" and not is_nested:
            yield from self._members(is_nested=True)
        elif key in _NAME_KEYS and char == '"' and not self._name:
            self._name = yield from read_text(src)
        elif key in _ID_KEYS and char == '"':
            self._id = yield from read_text(src)
        elif key in _ARGUMENT_KEYS and not self._has_arguments:
            yield from self._arguments(char)
        elif self._out.is_held and key not in _OTHER_KEYS:
            raise Malformed("not_a_call")
        else:
            yield from read_value(src, _ignore)

    def _arguments(self, first: str) -> Pull[None]:
        self._has_arguments = True
        if self._name:
            self._start()
            write: Write = self._out.arguments
        else:
            write = self._early.append
        if first in '{["':
            yield from read_value(self._src, write)
        else:
            value = yield from self._src.run(_SCALAR)
            write("" if value in ("null", "None") else value)
        if self._out.has_open_call:
            self._out.end_arguments()

    def _start(self) -> None:
        name = self._name.strip()
        if not name or any(char.isspace() for char in name):
            raise Malformed("bad_name" if self._name else "not_a_call")
        self._out.start_call(name, self._id)


def read_json_call(src: Source, out: Output, form: JsonCall) -> Pull[None]:
    """Consume one call, from its `{` on."""
    yield from _CallObject(src, out).read()
