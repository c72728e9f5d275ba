# SPDX-License-Identifier: Apache-2.0
"""Reads tagged calls: a name, then parameters in tags, whose bare values become JSON.

Such wires escape nothing, so a value may contain its own closing tag. A closing tag ends a value
only where the wire goes on behind it: another parameter, the call's end, or the output's.
"""

import re
from functools import lru_cache

from tokenlight.text.parsing.format import TaggedCall, ToolFormat
from tokenlight.text.parsing.forms.json_call import escape
from tokenlight.text.parsing.forms.schema import as_json, is_text, parameter_types
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.scan import compile_scan, found, with_gaps
from tokenlight.text.parsing.source import SPACE, Malformed, Pull, Source, Unfinished

_NAME = re.compile(r"[^\s<>\"]*")
_HEAD_CHARS = 512
_LOOK_AHEAD = 64
"""No marker is longer."""


def read_tagged_call(src: Source, out: Output, form: TaggedCall, tools: ToolFormat) -> Pull[None]:
    """Consume one call, from after `form.open` on."""
    name = yield from src.run(_NAME, _HEAD_CHARS)
    yield from src.space()
    if not name or not (yield from src.skip(form.after_name)):
        raise Malformed("bad_name")
    yield from _TaggedCall(src, out, form, tools, name).read()


class _Value:
    """One parameter's value under way: streamed as a string, or kept until it can be read."""

    def __init__(self, out: Output, types: frozenset[str]) -> None:
        self._out = out
        self._types = types
        self._pieces: list[str] = []
        self._is_decided = False
        self._is_text = False

    def add(self, text: str) -> None:
        if self._is_text:
            self._out.arguments(escape(text))
            return
        self._pieces.append(text)
        if self._is_decided or not (start := text.lstrip()):
            return
        self._is_decided = True
        if is_text(self._types, start[0]):
            self._is_text = True
            self._out.arguments('"' + escape("".join(self._pieces)))

    def end(self) -> None:
        text = '"' if self._is_text else as_json("".join(self._pieces), self._types)
        self._out.arguments(text)


@lru_cache(maxsize=64)
def _value_scan(form: TaggedCall) -> re.Pattern[str]:
    """What may end a value: its closing tag, its call's, or the next parameter's."""
    return compile_scan(
        {
            "value": with_gaps((form.value_close,), form.padding),
            "call": with_gaps((form.close,), form.padding),
            "next": ("\n" + form.parameter,),
        }
    )


class _TaggedCall:
    """One call under way."""

    def __init__(
        self, src: Source, out: Output, form: TaggedCall, tools: ToolFormat, name: str
    ) -> None:
        self._src = src
        self._out = out
        self._form = form
        self._name = name
        self._schema = out.schema(name)
        self._given: set[str] = set()
        self._starts = (form.parameter, form.close, *tools.closers)
        self._behind_call = tuple(filter(None, (*tools.closers, *tools.openers, form.open)))
        self._behind_value = tuple(dict.fromkeys((form.parameter, form.close, *self._behind_call)))
        self._scan = _value_scan(form)

    def read(self) -> Pull[None]:
        src, out, form = self._src, self._out, self._form
        is_started = False
        while True:
            yield from src.space()
            marker = yield from src.starts(self._behind_value)
            src.drop_cut(self._behind_value)
            if not is_started:
                if marker not in self._starts:
                    yield from src.need()
                    raise Malformed("not_a_call")
                out.start_call(self._name)
                out.arguments("{")
                is_started = True
            if marker == form.parameter:
                src.take(src.at + len(marker))
                yield from self._parameter()
                continue
            if marker == form.close:
                src.take(src.at + len(marker))
            elif not marker and src.at < len(src.text):
                raise Malformed("invalid_arguments")
            elif not marker and src.is_cut:
                raise Unfinished
            break
        out.arguments("}")
        out.end_arguments()
        out.end_call()

    def _parameter(self) -> Pull[None]:
        src = self._src
        head = yield from self._head(0)
        if head is None:
            raise Malformed("invalid_arguments")
        src.take(head.end() + len(self._form.value_open))
        name = head["name"].strip()
        types = parameter_types(self._schema, name)
        match head.groupdict().get("string"):
            case "true":
                types = frozenset({"string"})
            case "false":
                types = types - {"string"}
        self._out.arguments(f'{", " if self._given else ""}"{escape(name)}": ')
        self._given.add(name)
        yield from src.newlines(self._form.padding)
        yield from self._value(_Value(self._out, types))

    def _head(self, ahead: int) -> Pull[re.Match[str] | None]:
        """The head that begins `ahead` characters ahead, not consumed; None where none does."""
        src, form = self._src, self._form
        while True:
            start = src.at + ahead
            end = src.text.find(form.value_open, start, start + _HEAD_CHARS)
            if end >= 0:
                return form.head.fullmatch(src.text, start, end)
            if len(src.text) - start >= _HEAD_CHARS:
                return None
            yield from src.wait()

    def _value(self, value: _Value) -> Pull[None]:
        src = self._src
        while True:
            match = self._scan.search(src.text, src.at)
            value.add(src.take(match.start() if match else len(src.text)))
            if match is None or found(match) == "part":
                yield from src.wait()
                continue
            marker = match.group()
            if found(match) == "value":
                is_over = yield from self._goes_on(len(marker), self._behind_value)
            elif found(match) == "call":
                is_over = yield from self._goes_on(len(marker), self._behind_call)
            else:
                is_over = yield from self._is_next(len(marker))
            if is_over:
                value.end()
                if found(match) == "value":
                    src.take(src.at + len(marker))
                return
            value.add(src.take(src.at + (1 if found(match) == "next" else len(marker))))

    def _goes_on(self, ahead: int, markers: tuple[str, ...]) -> Pull[bool]:
        """Whether one of `markers`, or the output's end, follows `ahead` characters and space."""
        src = self._src
        while True:
            space = SPACE.match(src.text, src.at + ahead)
            at = space.end() if space else src.at + ahead
            rest = src.text[at : at + _LOOK_AHEAD]
            if rest.startswith(markers):
                return True
            if not any(marker.startswith(rest) for marker in markers):
                return False
            if src.is_ended:
                return True
            yield

    def _is_next(self, ahead: int) -> Pull[bool]:
        """Whether a parameter begins though the value is not closed: a known one, not given yet."""
        head = yield from self._head(ahead)
        if head is None:
            return False
        name = head["name"].strip()
        properties = self._schema.get("properties")
        return isinstance(properties, dict) and name in properties and name not in self._given
