# SPDX-License-Identifier: Apache-2.0
"""Why a prompt could not be found in the cache: where it parts from the prompts before it.

The token ids of recent prompts are kept, each readable by its writer's key alone. A request with
the header `x-tokenlight-explain` gets a header `x-tokenlight-prefix` back:

    cause           first: no earlier prompt begins alike; repeats; extends: it goes on where the
                    turns of an earlier one end; changed: it parts from the closest one before
    common_tokens   shared with the closest earlier prompt; more than usage says was cached: evicted
    turn, role      where it parts, counted in the conversation as it was rendered; a turn of -1 is
                    what the template writes before the first turn, tools for one
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tokenlight.text.conversation import Turn

HEADER = "x-tokenlight-explain"
MAX_TOKENS = 8 << 20
"""Of all kept prompts together: 32 MiB."""
_MIN_COMMON_TOKENS = 16

Cause = Literal["first", "repeats", "extends", "changed"]


@dataclass(frozen=True, slots=True)
class Kept:
    owner: bytes
    token_ids: NDArray[np.int32]
    num_said_chars: int
    """Where its last turn ends; behind it, the template opens the answer."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A prompt beside the closest one before it."""

    num_tokens: int
    num_common_tokens: int
    closest: Kept | None

    def cause(self, num_common_chars: int) -> Cause:
        closest, common = self.closest, self.num_common_tokens
        if closest is None or common < min(_MIN_COMMON_TOKENS, len(closest.token_ids)):
            return "first"
        if common == len(closest.token_ids) == self.num_tokens:
            return "repeats"
        if common == len(closest.token_ids) or num_common_chars >= closest.num_said_chars:
            return "extends"
        return "changed"


class RecentPrompts:
    """The token ids of recent prompts, the newest last."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._kept: deque[Kept] = deque()

    async def compare(self, owner: bytes, token_ids: list[int]) -> Parting:
        """Beside the prompts that `note` was given for this owner."""
        kept = [earlier for earlier in self._kept if earlier.owner == owner]
        return await asyncio.to_thread(_compare, kept, np.asarray(token_ids, np.int32))

    def note(self, owner: bytes, token_ids: list[int], num_said_chars: int) -> None:
        if len(token_ids) > self._max_tokens:
            return
        self._kept.append(Kept(owner, np.asarray(token_ids, np.int32), num_said_chars))
        self._num_tokens += len(token_ids)
        while self._num_tokens > self._max_tokens:
            self._num_tokens -= len(self._kept.popleft().token_ids)


def _compare(kept: list[Kept], ids: NDArray[np.int32]) -> Parting:
    most, closest = 0, None
    for earlier in kept:
        num_common = _num_common(earlier.token_ids, ids)
        if num_common >= most:
            most, closest = num_common, earlier
    return Parting(len(ids), most, closest)


def _num_common(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def turn_spans(turns: tuple[Turn, ...], text: str) -> list[tuple[int, int] | None]:
    """Where each turn's words stand in the prompt; None where it has none that can be found."""
    spans: list[tuple[int, int] | None] = []
    at = 0
    for turn in turns:
        said = _first_words(turn)
        start = text.find(said, at) if said else -1
        spans.append(None if start < 0 else (start, start + len(said)))
        at = at if start < 0 else start + len(said)
    return spans


def said_chars(turns: tuple[Turn, ...], text: str) -> int:
    """Where the words of the last turn that has any end in the prompt; 0 where none is found."""
    words = next((said for turn in reversed(turns) if (said := _first_words(turn))), "")
    start = text.rfind(words) if words else -1
    return 0 if start < 0 else start + len(words)


def turn_at(spans: list[tuple[int, int] | None], offset_chars: int) -> int:
    """The turn that the prompt's character belongs to; -1 for what stands before the first."""
    started = [i for i, span in enumerate(spans) if span is not None and span[0] <= offset_chars]
    return started[-1] if started else -1


def _first_words(turn: Turn) -> str:
    """A text of the turn that every template writes as it is."""
    texts = [turn.text, *(result.text for result in turn.results), *(c.name for c in turn.calls)]
    return next((text.strip() for text in texts if text.strip()), "")
