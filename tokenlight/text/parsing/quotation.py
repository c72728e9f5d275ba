# SPDX-License-Identifier: Apache-2.0
"""Which calls in reasoning are calls, and which are quoted.

A model that thinks about calls writes them down; one that forgets to close its reasoning calls from
inside it. A call in reasoning counts if it is whole and sound, of a tool of the request, and the
last thing in the output: behind it come white space, calls of the same kind, the reasoning's end,
and nothing else. An example is always followed by something: its closing quote, a further thought,
the answer. Otherwise it is reasoning text, word for word.
"""

import re
from functools import lru_cache

from tokenlight.text.parsing.format import ReasoningFormat, ToolFormat
from tokenlight.text.parsing.output import Output
from tokenlight.text.parsing.scan import CONTROL_PATTERN, compile_scan, found, with_gaps
from tokenlight.text.parsing.section import read_section, take_opener
from tokenlight.text.parsing.source import Malformed, Pull, Source

_LONGEST_MARKER = 64
_DONE = object()


@lru_cache(maxsize=64)
def reasoning_scan(
    tools: ToolFormat, reasoning: ReasoningFormat, *, has_calls: bool
) -> re.Pattern[str]:
    """What may lead out of reasoning."""
    return compile_scan(
        {
            "close": with_gaps(reasoning.closers, reasoning.padding),
            "call": with_gaps(tools.openers, tools.gap) if has_calls else (),
            "think": reasoning.openers,
            "stray": tools.strays,
        },
        patterns=CONTROL_PATTERN,
    )


class LastCalls:
    """Reads calls in reasoning, to the output's end if they count; the caller holds the events."""

    def __init__(
        self, src: Source, out: Output, tools: ToolFormat, reasoning: ReasoningFormat
    ) -> None:
        self._src = src
        self._out = out
        self._tools = tools
        self._closers = reasoning.closers
        self._scan = reasoning_scan(tools, reasoning, has_calls=True)

    def read(self, opener: str | None) -> Pull[bool]:
        """Whether calls follow, from `opener` on, that count."""
        src, out = self._src, self._out
        while opener:
            take_opener(src, opener, self._tools)
            try:
                yield from self._unclosed(read_section(src, out, self._tools, is_bare=False))
            except Malformed:
                if not (out.has_whole_arguments and src.is_ended and not src.is_cut):
                    return False
                out.end_call()
            if not out.is_sound:
                return False
            opener = yield from self._next_opener()
        return opener is not None and not src.is_cut

    def _next_opener(self) -> Pull[str | None]:
        """What follows a call: another's opener, "" for nothing more, None for anything else."""
        src = self._src
        is_closed = False
        while True:
            yield from src.space()
            if not (yield from src.peek()):
                return ""
            match = self._scan.match(src.text, src.at)
            kind = found(match)
            if match is None or (kind == "part" and src.is_ended):
                return None
            if kind == "part":
                yield
            elif kind == "call" and not is_closed:
                return match.group()
            elif kind in ("control", "stray") or (kind == "close" and not is_closed):
                is_closed |= kind == "close"
                src.take(match.end())
            else:
                return None

    def _unclosed(self, reader: Pull[None]) -> Pull[None]:
        """Run a reader; give up once it has read the reasoning's closer, which no call contains."""
        tape = self._src.tape or []
        seen = 0
        tail = ""
        is_running = True
        while is_running:
            is_running = next(reader, _DONE) is not _DONE
            fresh = tail + "".join(tape[seen:])
            seen = len(tape)
            if any(closer in fresh for closer in self._closers):
                raise Malformed("not_a_call")
            tail = fresh[-_LONGEST_MARKER:]
            if is_running:
                yield
