# SPDX-License-Identifier: Apache-2.0
"""Reads calls written as code: `name(key=value)` and its kin; literals become JSON as they come."""

import re
from collections.abc import Iterator

from tokenlight.text.parsing.format import LiteralCall
from tokenlight.text.parsing.forms.json_call import escape
from tokenlight.text.parsing.forms.literal import LiteralReader, another_item
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.source import Malformed, Pull, Source

_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"\w*")
_NAME_CHARS = 256


def read_literal_call(src: Source, out: Output, form: LiteralCall) -> Pull[None]:
    """Consume one call, from its name on."""
    opener, closer = form.brackets
    name = yield from src.run(_NAME, _NAME_CHARS)
    yield from src.space()
    if not name or (yield from src.need()) != opener:
        raise Malformed("not_a_call")
    if form.known_only and name not in out.functions:
        raise Malformed("not_a_call")
    src.take(src.at + 1)
    out.start_call(name)
    out.arguments("{")
    arguments = _Arguments(src, out, form, iter(out.schema(name).get("properties", ())))
    is_first = True
    while (yield from another_item(src, closer, is_first=is_first)):
        if not is_first:
            out.arguments(", ")
        is_first = False
        yield from arguments.read()
    out.arguments("}")
    out.end_arguments()
    out.end_call()


class _Arguments:
    """Reads arguments one by one; `properties` names those that stand without a key."""

    def __init__(
        self, src: Source, out: Output, form: LiteralCall, properties: Iterator[str]
    ) -> None:
        self._src = src
        self._out = out
        self._is_python = form.is_python
        self._properties = properties
        self._literals = LiteralReader(src, out.arguments, form.quotes, is_python=form.is_python)

    def read(self) -> Pull[None]:
        src = self._src
        if not self._is_python:
            yield from self._literals.key()
            yield from self._literals.value()
            return
        word = yield from src.run(_KEY, _NAME_CHARS)
        yield from src.space()
        is_keyword = bool(word) and (yield from src.need()) == "="
        if is_keyword:
            src.take(src.at + 1)
        key = word if is_keyword else next(self._properties, None)
        if key is None:
            raise Malformed("invalid_arguments")
        self._out.arguments(f'"{escape(key)}": ')
        if is_keyword or not word:
            yield from self._literals.value()
        else:
            yield from self._literals.word(word)
