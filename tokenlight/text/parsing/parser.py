# SPDX-License-Identifier: Apache-2.0
"""The one parser: a model's output in pieces of text in, events out.

Three places are known: reasoning, content, and a section of calls; `_reasoning` and `_content` scan
for what leads out of them. Two rules decide when text that looks like a call is one.

In content, an opener of the model's wire form means a call: what follows is a call or a
`ParseFailed`. Where a format lets a call stand without opener, it must call a tool of the request.

In reasoning, models quote calls; which of them count is `quotation`'s to say.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from tokenlight.text.parsing.channels import ChannelReader
from tokenlight.text.parsing.events import Collector, Event, Parsed
from tokenlight.text.parsing.format import IdStyle, ReasoningFormat, ToolFormat
from tokenlight.text.parsing.output import Functions, Output, make_id
from tokenlight.text.parsing.quotation import LastCalls, reasoning_scan
from tokenlight.text.parsing.scan import (
    CONTROL_PATTERN,
    compile_scan,
    found,
    with_gaps,
    without_control,
)
from tokenlight.text.parsing.section import read_section, take_opener
from tokenlight.text.parsing.source import SPACE, Malformed, Pull, Source, Unfinished

_MOST_REREAD_CHARS = 262_144
"""What candidates that were text after all may cost; beyond, none is tried in this output."""
_BETWEEN_BARE = re.compile(r"[\s,;]*")


@lru_cache(maxsize=64)
def _content_scan(
    tools: ToolFormat, reasoning: ReasoningFormat, *, has_calls: bool
) -> re.Pattern[str]:
    patterns = dict(CONTROL_PATTERN)
    if has_calls and tools.bare == "line":
        patterns = {"line": (r"\n[ \t]{0,16}(?=[\[{])", r"\n[ \t]{0,16}"), **patterns}
    return compile_scan(
        {
            "call": with_gaps(tools.openers, tools.gap) if has_calls else (),
            "quiet": tools.quiet_openers if has_calls else (),
            "think": reasoning.openers,
            "unthink": reasoning.closers,
            "stray": (*tools.strays, *reasoning.strays),
        },
        patterns=patterns,
    )


class Parser:
    """Parses one output. Deltas may be cut anywhere; the events, joined, are the same.

    Args:
        tools: how the model writes calls.
        reasoning: how it marks reasoning; channels say so themselves.
        functions: the request's tools, name to JSON Schema of the arguments. None: no call is
            parsed, what looks like one is content (`tool_choice: "none"` says the same).
        starts_inside: whether the output starts inside reasoning, from `ReasoningFormat.is_open_in`
            of the rendered prompt; None where it is not known.
        is_forced: whether a grammar lets nothing but calls be said: what a cut leaves of one is
            no text then, though nothing names it a call yet.
        id_source: makes ids for calls whose wire has none: (style, name, index) to id.
    """

    def __init__(
        self,
        tools: ToolFormat,
        reasoning: ReasoningFormat,
        *,
        functions: Functions | None = None,
        starts_inside: bool | None = None,
        is_forced: bool = False,
        id_source: Callable[[IdStyle, str, int], str] = make_id,
    ) -> None:
        self._tools = tools
        self._reasoning_format = reasoning
        self._has_calls = bool(functions)
        self._starts_inside = reasoning.is_implied if starts_inside is None else starts_inside
        self._is_forced = is_forced
        self._src = Source()
        self._out = Output(
            parser=tools.name,
            functions=functions or {},
            id_style=tools.id_style,
            id_source=id_source,
        )
        self._scan = _content_scan(tools, reasoning, has_calls=self._has_calls)
        self._num_reread_chars = 0
        self._run = self._all()
        next(self._run)

    def push(self, delta: str) -> list[Event]:
        """Take more of the output; returns what is certain by now."""
        if self._src.is_ended:
            raise RuntimeError("the output has ended; nothing can be pushed behind it")
        self._src.feed(delta)
        next(self._run)
        return self._out.drain()

    def finish(self, *, is_cut: bool = False) -> list[Event]:
        """The output has ended; `is_cut`: not by the model, but by max_tokens or the like."""
        self._src.is_ended = True
        self._src.is_cut = is_cut
        for _ in self._run:
            raise RuntimeError("a reader waits for text behind the output's end")
        return self._out.drain()

    def _all(self) -> Pull[None]:
        yield
        if self._tools.channels:
            reader = ChannelReader(
                self._src, self._out, self._tools.channels, has_calls=self._has_calls
            )
            yield from reader.read(starts_inside=self._starts_inside)
        else:
            if self._starts_inside:
                yield from self._reasoning()
            yield from self._content()
        self._out.finish()

    @property
    def _tries_candidates(self) -> bool:
        return self._has_calls and self._num_reread_chars < _MOST_REREAD_CHARS

    # ---- content ---------------------------------------------------------------------------------

    def _content(self) -> Pull[None]:
        src, out, scan = self._src, self._out, self._scan
        while True:
            if self._tools.bare != "never" and out.is_at_start and self._tries_candidates:
                while (yield from self._bare_call()):
                    pass
            match = scan.search(src.text, src.at)
            out.content(src.take(match.start() if match else len(src.text)))
            if match is None or found(match) == "part":
                if src.is_ended:
                    self._end_content()
                    return
                yield
                continue
            reader = self._leave_content(match)
            if reader is not None:
                yield from reader

    def _end_content(self) -> None:
        """Take what the output ends with: nothing, or half a marker."""
        src, out = self._src, self._out
        rest = src.take(len(src.text))
        if rest.strip() and self._is_forced and src.is_cut:
            out.fail("truncated", text=rest)
        else:
            out.content(rest)

    def _leave_content(self, match: re.Match[str]) -> Pull[object] | None:
        """What a marker in content leads to; None where it has been dealt with."""
        marker = match.group()
        is_at_start = self._out.is_at_start
        match found(match):
            case "call":
                return self._section(marker)
            case "quiet" | "line" if self._tries_candidates:
                return self._candidate(len(marker), is_bare=found(match) == "line")
            case "quiet" | "line":
                self._out.content(self._src.take(match.end()))
            case "think" if is_at_start:
                self._src.take(match.end())
                return self._reasoning()
            case "unthink" if is_at_start:
                self._src.take(match.end())
                return self._src.newlines(self._reasoning_format.gap)
            case "think" | "unthink":
                self._out.content(self._src.take(match.end()))
            case _:
                self._src.take(match.end())
        return None

    def _section(self, marker: str) -> Pull[None]:
        """Read a section from its opener on; what is no call is a failure."""
        src = self._src
        src.mark()
        take_opener(src, marker, self._tools)
        try:
            yield from read_section(src, self._out, self._tools, is_bare=False)
        except Malformed as fault:
            self._broken(fault)
        src.unmark()

    def _broken(self, fault: Malformed) -> None:
        src, out = self._src, self._out
        is_cut = self._is_cut(fault)
        if isinstance(fault, Unfinished):
            src.take(len(src.text))
        if out.has_open_call:
            out.break_call(fault.reason, is_cut=is_cut)
        else:
            out.fail("truncated" if is_cut else fault.reason, text=src.taped())

    def _is_cut(self, fault: Malformed) -> bool:
        return self._src.is_cut and isinstance(fault, Unfinished)

    def _bare_call(self) -> Pull[bool]:
        """Read a call that may stand where content starts."""
        src, out = self._src, self._out
        out.content((yield from src.run(SPACE)))
        if (yield from src.peek()) not in ("{", "["):
            return False
        return (yield from self._candidate(0, is_bare=True))

    def _candidate(self, length: int, *, is_bare: bool) -> Pull[bool]:
        """Read what may be a call to a known tool, `length` characters ahead, else is content."""
        src, out = self._src, self._out
        src.mark()
        src.take(src.at + length)
        out.hold(releases_at_start=True)
        try:
            yield from read_section(src, out, self._tools, is_bare=is_bare)
        except Malformed as fault:
            is_text = out.is_held and not (self._is_forced and self._is_cut(fault))
            if out.is_held:
                out.drop()
            if is_text:
                self._num_reread_chars += len(src.rewind())
                out.content(src.take(src.at + max(length, 1)))
                return False
            self._broken(fault)
        src.unmark()
        if is_bare:
            yield from src.run(_BETWEEN_BARE)
        return True

    # ---- reasoning -------------------------------------------------------------------------------

    def _reasoning(self) -> Pull[None]:
        """Read reasoning from behind its opener, its closer included."""
        src, out, format = self._src, self._out, self._reasoning_format
        scan = reasoning_scan(self._tools, format, has_calls=self._has_calls)
        yield from src.newlines(format.padding)
        while True:
            match = scan.search(src.text, src.at)
            out.reasoning(src.take(match.start() if match else len(src.text)))
            if match is None or found(match) == "part":
                if src.is_ended:
                    out.reasoning(src.take(len(src.text)))
                    return
                yield
            elif found(match) == "close":
                src.take(match.end())
                out.end_reasoning()
                yield from src.newlines(format.gap)
                return
            elif found(match) == "call" and self._tries_candidates:
                if (yield from self._call_in_reasoning(match.group())):
                    return
            else:
                marker = src.take(match.end())
                if found(match) == "think" and out.is_at_reasoning_start:
                    yield from src.newlines(format.padding)
                elif found(match) != "stray":
                    out.reasoning(without_control(marker))

    def _call_in_reasoning(self, marker: str) -> Pull[bool]:
        """Read a call that stands in reasoning; False: it is reasoning, and its opener is read."""
        src, out = self._src, self._out
        src.mark()
        out.hold(releases_at_start=False)
        calls = LastCalls(src, out, self._tools, self._reasoning_format)
        if (yield from calls.read(marker)):
            out.release()
            src.unmark()
            return True
        out.drop()
        taped = src.rewind()
        ends = [taped.find(closer) for closer in self._reasoning_format.closers]
        # How far behind its closer a candidate was read depends on the deltas; its cost must not.
        self._num_reread_chars += min([end for end in ends if end >= 0], default=len(taped))
        out.reasoning(without_control(src.take(src.at + len(marker))))
        return False


def parse(
    text: str,
    tools: ToolFormat,
    reasoning: ReasoningFormat,
    *,
    functions: Functions | None = None,
    starts_inside: bool | None = None,
    is_cut: bool = False,
) -> Parsed:
    """A whole output at once: the same parser, fed once."""
    parser = Parser(tools, reasoning, functions=functions, starts_inside=starts_inside)
    collector = Collector()
    collector.add(parser.push(text))
    collector.add(parser.finish(is_cut=is_cut))
    return collector.parsed()
