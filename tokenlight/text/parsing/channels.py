# SPDX-License-Identifier: Apache-2.0
"""Reads messages with headers (harmony).

A header says whether its message is reasoning, content or a call, and which tool it goes to.
"""

import re
from functools import lru_cache

from tokenlight.text.parsing.format import Channels
from tokenlight.text.parsing.forms.json_call import read_container
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.scan import CONTROL_PATTERN, compile_scan, found, without_control
from tokenlight.text.parsing.source import Malformed, Pull, Source, Unfinished

_HEADER_CHARS = 1024
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NO_TOOL = frozenset({"assistant", "user", "all", "system", "developer"})


@lru_cache(maxsize=8)
def _body_scan(format: Channels) -> re.Pattern[str]:
    """What ends a message: its mark, or where that was left out, the next one's header."""
    ends = (*format.ends, format.start, format.channel)
    return compile_scan({"end": ends}, patterns=CONTROL_PATTERN)


class ChannelReader:
    """One output's messages. `has_calls` false: a message to a tool is content."""

    def __init__(self, src: Source, out: Output, format: Channels, *, has_calls: bool) -> None:
        self._src = src
        self._out = out
        self._format = format
        self._has_calls = has_calls
        self._starts = (format.start, format.channel, format.message, format.constrain)
        self._body_scan = _body_scan(format)
        self._channel = re.compile(re.escape(format.channel) + r"\s*(\w+)")

    def read(self, *, starts_inside: bool) -> Pull[None]:
        """Consume messages to the output's end; `starts_inside`: from inside one of reasoning."""
        src = self._src
        if starts_inside:
            yield from self._text("reasoning")
            self._out.end_reasoning()
        while (yield from src.peek()):
            if (yield from src.starts((*self._starts, " to=", "to="))):
                src.mark()
                try:
                    yield from self._message((yield from self._header()))
                except Malformed as fault:
                    self._broken(fault)
                    src.unmark()
            elif (yield from src.starts(self._format.ends)):
                yield from self._end()
            else:
                yield from self._text("content")

    def _header(self) -> Pull[str]:
        """Consume a header and the mark behind it."""
        src = self._src
        mark = self._format.message
        while True:
            end = src.text.find(mark, src.at, src.at + _HEADER_CHARS)
            if end >= 0:
                header = src.take(end)
                src.take(end + len(mark))
                src.unmark()
                return header
            if len(src.text) - src.at >= _HEADER_CHARS:
                src.take(src.at + _HEADER_CHARS)
                raise Malformed("not_a_call")
            yield from src.wait()

    def _message(self, header: str) -> Pull[None]:
        recipient = _RECIPIENT.search(header)
        channel = self._channel.search(header)
        tool = recipient[1].removeprefix(self._format.namespace) if recipient else ""
        if tool and self._has_calls and tool not in _NO_TOOL:
            yield from self._call(tool)
        elif channel and channel[1] in self._format.reasoning and not tool:
            yield from self._text("reasoning")
            self._out.end_reasoning()
        else:
            yield from self._text("content")

    def _call(self, name: str) -> Pull[None]:
        src, out = self._src, self._out
        out.start_call(name)
        yield from src.space()
        if (yield from src.peek()) == "{":
            yield from read_container(src, out.arguments)
        else:
            yield from self._text("arguments")
        out.end_arguments()
        out.end_call()
        yield from src.space()

    def _text(self, kind: str) -> Pull[None]:
        """Consume text up to a message's end, the end's mark included."""
        src = self._src
        write = {
            "content": self._out.content,
            "reasoning": self._out.reasoning,
            "arguments": self._out.arguments,
        }[kind]
        while True:
            match = self._body_scan.search(src.text, src.at)
            write(src.take(match.start() if match else len(src.text)))
            if match is None or found(match) == "part":
                if src.is_ended:
                    if kind == "content" or kind == "reasoning":
                        write(src.take(len(src.text)))
                    return
                yield
            elif found(match) == "end":
                yield from self._end()
                return
            else:
                src.take(match.end())

    def _end(self) -> Pull[None]:
        """Consume a message's end; the beginning of the next one's header is left."""
        for mark in self._format.ends:
            if self._src.text.startswith(mark, self._src.at):
                self._src.take(self._src.at + len(mark))
        return
        yield

    def _broken(self, fault: Malformed) -> None:
        src, out = self._src, self._out
        is_cut = src.is_cut and isinstance(fault, Unfinished)
        if src.is_ended:
            src.take(len(src.text))
        if out.has_open_call:
            out.break_call(fault.reason, is_cut=is_cut)
        elif not src.is_ended:
            out.content(without_control(src.taped()))
        elif _RECIPIENT.search(src.taped()):
            out.fail("truncated" if is_cut else fault.reason, text=src.taped())
