# SPDX-License-Identifier: Apache-2.0
"""One answer to a prompt, as it happens: it begins, its items open, grow and close, it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from tokenlight.server.admission import Admitted
from tokenlight.server.answer.items import Change, Closed, Grew, Item, Itemizer, Opened
from tokenlight.server.answer.prompt import Prompt
from tokenlight.server.generation import FinishReason, Piece, generate
from tokenlight.server.services import Services
from tokenlight.text.parsing import Content, Event, ParseFailed


@dataclass(frozen=True, slots=True)
class Began:
    """The prompt has been computed: the first token is there."""

    num_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    items: list[Item]
    failures: list[ParseFailed]
    """Calls that the model began and did not make; what was readable of them is in the items."""
    finish_reason: FinishReason
    matched_stop: str | None
    num_sampled_tokens: int
    num_cached_tokens: int
    num_reasoning_tokens: int

    @property
    def has_calls_to_run(self) -> bool:
        """There are calls, and the model has ended each: what it began to write is no call."""
        return not self._breaks_in_call and any(item.kind == "call" for item in self.items)

    @property
    def is_cut(self) -> bool:
        """There would be more of it: the limit is reached, or a call breaks off."""
        is_stopped = self.matched_stop is not None
        return self.finish_reason == "length" or (self._breaks_in_call and not is_stopped)

    @property
    def _breaks_in_call(self) -> bool:
        """Whole arguments that are no JSON object do not count: clients tell the model of those."""
        calls = [item for item in self.items if item.kind == "call"]
        are_whole = {f.index for f in self.failures if f.reason == "invalid_arguments"}
        return any(not call.is_complete and i not in are_whole for i, call in enumerate(calls))


Happening: TypeAlias = Began | Opened | Grew | Closed | Ended


@dataclass(frozen=True, slots=True)
class Reading:
    """A piece of one choice, read."""

    piece: Piece
    changes: list[Change]
    ended: Ended | None
    """Of the choice: this was its last piece."""


async def readings(
    svc: Services, admitted: Admitted, prompt: Prompt, *, is_raw: bool = False
) -> AsyncGenerator[Reading, None]:
    """Generate all choices, each read by a reader of its own, until all have ended.

    Leaving early, for whatever reason, aborts the generation.
    """
    readers = [AnswerReader(svc, prompt, is_raw=is_raw) for _ in range(admitted.num_choices)]
    num_open = len(readers)
    async with aclosing(generate(svc, [admitted])) as pieces:
        async for piece in pieces:
            reader = readers[piece.index]
            if reader.ended is not None:
                continue
            changes = reader.read(piece)
            yield Reading(piece, changes, reader.ended)
            num_open -= reader.ended is not None
            if not num_open:
                return


async def answer(
    svc: Services, admitted: Admitted, prompt: Prompt
) -> AsyncGenerator[Happening, None]:
    """Generate the one choice. The first happening is `Began`, the last `Ended`."""
    has_begun = False
    async with aclosing(readings(svc, admitted, prompt)) as read:
        async for reading in read:
            if not has_begun:
                has_begun = True
                yield Began(reading.piece.num_cached_tokens)
            for change in reading.changes:
                yield change
            if reading.ended is not None:
                yield reading.ended


class AnswerReader:
    """Pieces of one choice in, changes of its items out; `ended` once it is complete."""

    def __init__(self, svc: Services, prompt: Prompt, *, is_raw: bool = False) -> None:
        """Read the answer to `prompt`; `is_raw` leaves it unparsed, as one text."""
        self._metrics = svc.metrics
        self._parser = None if is_raw else svc.dialect.parser(prompt.conversation, prompt.text)
        self._allows_parallel = prompt.conversation.allows_parallel
        self._items = Itemizer()
        self._num_sampled_tokens = 0
        self._num_reasoning_tokens = 0
        self.ended: Ended | None = None

    def read(self, piece: Piece) -> list[Change]:
        changes = self._items.push(self._parse(piece))
        finish = piece.finish_reason
        self._count(piece, changes)
        if not self._allows_parallel:
            cut = _first_call_end(changes)
            if cut is not None:
                # One call was asked for; the model is stopped where it could begin another.
                changes, finish = changes[:cut], "stop"
                self._items.keep(changes[-1].item)
        if finish is not None:
            changes += self._items.finish(is_cut=finish != "stop")
            self._end(piece, finish)
        return changes

    def _parse(self, piece: Piece) -> list[Event]:
        if self._parser is None:
            return [Content(piece.text)] if piece.text else []
        events = self._parser.push(piece.text)
        if piece.finish_reason is not None:
            is_cut = piece.finish_reason != "stop" or piece.matched_stop is not None
            events += self._parser.finish(is_cut=is_cut)
        return events

    def _count(self, piece: Piece, changes: list[Change]) -> None:
        num_new_tokens = piece.num_sampled_tokens - self._num_sampled_tokens
        self._num_sampled_tokens = piece.num_sampled_tokens
        if not any(change.item.kind != "reasoning" for change in changes) and (
            self._items.is_thinking
        ):
            self._num_reasoning_tokens += num_new_tokens

    def _end(self, piece: Piece, finish: FinishReason) -> None:
        for failure in self._items.failures:
            self._metrics.count_parse_failure(failure.parser, failure.reason)
        self.ended = Ended(
            items=self._items.items,
            failures=self._items.failures,
            finish_reason=finish,
            matched_stop=piece.matched_stop,
            num_sampled_tokens=piece.num_sampled_tokens,
            num_cached_tokens=piece.num_cached_tokens,
            num_reasoning_tokens=self._num_reasoning_tokens,
        )


def _first_call_end(changes: list[Change]) -> int | None:
    """How many changes there are up to the one that ends a call."""
    for i, change in enumerate(changes):
        if isinstance(change, Closed) and change.item.kind == "call":
            return i + 1
    return None


async def whole_answer(svc: Services, admitted: Admitted, prompt: Prompt) -> Ended:
    """The answer once it is complete."""
    ended: Ended | None = None
    async with aclosing(answer(svc, admitted, prompt)) as happenings:
        async for happening in happenings:
            if isinstance(happening, Ended):
                ended = happening
    assert ended is not None
    return ended


async def encoded(
    happenings: AsyncGenerator[Happening, None], encode: Callable[[Happening], bytes]
) -> AsyncGenerator[bytes, None]:
    """The events of a stream; what says nothing in its protocol is left out."""
    async with aclosing(happenings):
        async for happening in happenings:
            if event := encode(happening):
                yield event
