# SPDX-License-Identifier: Apache-2.0
"""Lines that a client rewrites on each request, at its prompt's head: no prefix survives them.

They tell the model nothing about its task. Each kind is taken out whole, wherever the client's own
text has it (system and user turns; never an assistant's words or a tool's result), and named so
that the answer can announce it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import msgspec

from tokenlight.text.conversation.turns import Conversation, Part, Text, Turn


@dataclass(frozen=True, slots=True)
class VolatileLine:
    name: str
    sign: str
    """A text without which the pattern cannot match: most prompts are not searched further."""
    line: re.Pattern[str]


VOLATILE_LINES = (
    # Claude Code: version, entry point and a checksum (cch=) of the request.
    VolatileLine(
        "anthropic-billing-header",
        "x-anthropic-billing-header",
        re.compile(r"^[ \t]*x-anthropic-billing-header[ \t]*:[^\n]*(?:\n|\Z)", re.MULTILINE),
    ),
    # How much of the context, or of the turn's budget, is left.
    VolatileLine(
        "total-tokens",
        "total_tokens",
        re.compile(
            r"^[ \t]*<(?P<tag>(?:total_tokens|token_budget|budget:token_budget))>[^<\n]*</(?P=tag)>"
            r"[ \t]*(?:\n|\Z)",
            re.MULTILINE,
        ),
    ),
)


def without_volatile(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """The conversation without its volatile lines, and how many of each kind it had."""
    found: Counter[str] = Counter()
    turns = tuple(
        _turn(turn, found) if turn.role in ("system", "user") else turn
        for turn in conversation.turns
    )
    if not found:
        return conversation, found
    return msgspec.structs.replace(conversation, turns=turns), found


def _turn(turn: Turn, found: Counter[str]) -> Turn:
    parts: list[Part] = []
    for part in turn.parts:
        text = _text(part.text, found) if isinstance(part, Text) else None
        if text is None:
            parts.append(part)
        elif text.strip():
            # A part that held nothing else goes with its line; so does the line end it would leave.
            parts.append(Text(text))
    return Turn(turn.role, tuple(parts) or (Text(""),))


def _text(text: str, found: Counter[str]) -> str | None:
    """What is left; None when nothing was taken out."""
    num_taken = 0
    for volatile in VOLATILE_LINES:
        if volatile.sign in text:
            text, taken = volatile.line.subn("", text)
            if taken:
                found[volatile.name] += taken
                num_taken += taken
    return text if num_taken else None
