# SPDX-License-Identifier: Apache-2.0
"""Reads a section: what stands between an opener and a closer, one call or several."""

import re
from collections.abc import Iterator
from typing import assert_never

from tokenlight.text.parsing.format import (
    Form,
    HeadedCall,
    JsonCall,
    LiteralCall,
    TaggedCall,
    ToolFormat,
)
from tokenlight.text.parsing.forms.headed_call import read_headed_call
from tokenlight.text.parsing.forms.json_call import read_json_call
from tokenlight.text.parsing.forms.literal_call import read_literal_call
from tokenlight.text.parsing.forms.tagged_call import read_tagged_call
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.source import Malformed, Pull, Source

_WORD = re.compile(r"\w")
_AFTER_CALL = ",;}"
"""What models write between calls, or one too many of: no text."""


def read_section(src: Source, out: Output, tools: ToolFormat, *, is_bare: bool) -> Pull[None]:
    """Consume a section from behind its opener.

    Args:
        src: what to consume; marked anew where each call but the first begins, so that its tape is
            that call's.
        out: takes the calls.
        tools: the format.
        is_bare: whether there was no opener: then one call, or one list of calls, is all.

    Raises:
        Malformed: where what follows is no call. Text behind a call that is neither a call nor a
            closer is not the section's, and left.
    """
    first = out.num_calls
    yield from src.space()
    is_list = yield from src.skip("[")
    while True:
        yield from src.space()
        has_call = out.num_calls > first
        if has_call:
            if (is_bare and not is_list) or (yield from _is_over(src, tools, is_list=is_list)):
                return
            src.mark()
        form = yield from _form(src, tools.forms)
        if form is None:
            if has_call:
                return
            src.drop_cut(tuple(_opens(tools.forms)))
            yield from src.need()
            raise Malformed("not_a_call")
        yield from _read(src, out, form, tools)
        if isinstance(form, TaggedCall | HeadedCall) and not form.open:
            return


def take_opener(src: Source, marker: str, tools: ToolFormat) -> None:
    """Consume an opener; one that is a call's own beginning is left, but for the gap before it."""
    opener = marker.lstrip("\n")
    kept = len(opener) if tools.begins_call(opener) else 0
    src.take(src.at + len(marker) - kept)


def _is_over(src: Source, tools: ToolFormat, *, is_list: bool) -> Pull[bool]:
    """Whether a section with a call is over; consumes its closer, or what stands between calls."""
    calls = set(_opens(tools.forms))
    markers = tuple(marker for marker in (*tools.closers, *tools.openers) if marker not in calls)
    while True:
        yield from src.space()
        marker = yield from src.starts(markers)
        src.drop_cut(markers)
        char = yield from src.peek()
        if marker or not char:
            if marker in tools.closers:
                src.take(src.at + len(marker))
            return True
        if char not in _AFTER_CALL and not (char == "]" and is_list):
            return False
        src.take(src.at + 1)
        if char == "]":
            yield from src.space()
            if marker := (yield from src.starts(tools.closers)):
                src.take(src.at + len(marker))
            src.drop_cut(tools.closers)
            return True


def _opens(forms: tuple[Form, ...]) -> Iterator[str]:
    """What calls begin with, of the forms whose calls do."""
    return (form.open for form in forms if isinstance(form, TaggedCall | HeadedCall) and form.open)


def _form(src: Source, forms: tuple[Form, ...]) -> Pull[Form | None]:
    """Which form begins here, its `open` consumed."""
    for form in forms:
        if isinstance(form, JsonCall):
            if (yield from src.peek()) == "{":
                return form
        elif form.open:
            if (yield from src.skip(form.open)):
                return form
        elif _WORD.match((yield from src.peek())):
            return form
    return None


def _read(src: Source, out: Output, form: Form, tools: ToolFormat) -> Pull[None]:
    match form:
        case JsonCall():
            return read_json_call(src, out, form)
        case HeadedCall():
            return read_headed_call(src, out, form)
        case TaggedCall():
            return read_tagged_call(src, out, form, tools)
        case LiteralCall():
            return read_literal_call(src, out, form)
        case _:
            assert_never(form)
