# SPDX-License-Identifier: Apache-2.0
"""From an admitted request to pieces of text: decode, count, measure.

Leaving an iterator early, for whatever reason, aborts what it was reading from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET, UnsetType

from tokenlight import wire
from tokenlight.base.errors import EngineError
from tokenlight.server.admission import Admitted
from tokenlight.server.schemas.parameters import StreamOptions
from tokenlight.server.schemas.usage import Usage, make_usage
from tokenlight.server.services import Services
from tokenlight.text import AnswerDecoder

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one choice."""

    index: int
    """Of the choice, over all prompts of the response."""
    text: str
    token_ids: list[int]
    """Those sampled since the piece before, without the one that ended the choice."""
    finish_reason: FinishReason | None
    num_sampled_tokens: int
    """So far, the token that ended the choice included."""
    num_cached_tokens: int
    matched_stop: str | None = None
    """The stop string that ended the choice, if one did."""
    logprobs: list[wire.TokenLogprobs] = field(default_factory=list)
    """One for each of `token_ids`, when asked for."""
    prompt_logprobs: list[wire.PromptLogprobs] | None = None
    """Of the prompt's tokens from the second on; in the choice's first piece, when asked for."""


def token_ids_of(pieces: Sequence[Piece]) -> list[int]:
    """All that these pieces have, in their order."""
    return [token_id for piece in pieces for token_id in piece.token_ids]


async def generate_choice(
    svc: Services, admitted: Admitted, choice: int, *, index: int
) -> AsyncGenerator[Piece, None]:
    """One answer. The last piece, and only that, has a finish reason; the first comes at once.

    Args:
        svc: who does it.
        admitted: the request.
        choice: which of its choices; decides the seed.
        index: the choice's place in the response.
    """
    decoder = AnswerDecoder(
        svc.tokenizer,
        stops=admitted.stops,
        keeps_stop=admitted.keeps_stop,
        with_special=admitted.with_special,
    )
    is_first = True
    timing = svc.metrics.start_choice(num_prompt_tokens=len(admitted.prompt_token_ids))
    engine_id = f"{admitted.request_id}-{choice}"
    deltas = svc.engine.generate(
        admitted.prompt_token_ids,
        admitted.sampling_of(choice),
        request_id=engine_id,
        max_new_tokens=admitted.max_new_tokens,
        stop_token_ids=admitted.stop_token_ids,
        priority=admitted.priority,
        cache_salt=admitted.cache_salt,
    )
    with timing, svc.running.hold(admitted.names, engine_id):
        async with aclosing(deltas):
            async for delta in deltas:
                text = decoder.push(delta.token_ids, delta.logprobs or ())
                finish = _finish(svc, delta)
                num_sampled_tokens = delta.num_sampled_tokens
                if finish is not None and not decoder.is_stopped:
                    text += decoder.flush()
                if decoder.is_stopped:
                    finish = "stop"
                    num_sampled_tokens = decoder.num_tokens
                timing.observe(num_sampled_tokens, finish)
                if text or is_first or finish is not None:
                    is_first = False
                    token_ids, logprobs = decoder.take()
                    yield Piece(
                        index,
                        text,
                        token_ids,
                        finish,
                        num_sampled_tokens,
                        delta.num_cached_tokens,
                        decoder.matched_stop,
                        logprobs,
                        delta.prompt_logprobs,
                    )
                if finish is not None:
                    return


class Tally:
    """Token counts over the choices of a response, and where a stream reports them."""

    def __init__(self, prompts: Sequence[Admitted], options: StreamOptions | None = None) -> None:
        self.has_last_chunk = options is not None and bool(options.include_usage)
        """Whether a stream ends with a chunk of usage alone."""
        self._is_continuous = options is not None and bool(options.continuous_usage_stats)
        self._prompt_tokens = sum(len(p.prompt_token_ids) for p in prompts)
        self._sampled_tokens: dict[int, int] = {}
        self._cached_tokens: dict[int, int] = {}
        # A prompt counts once: what its first choice found in the cache is what it found.
        self._firsts: set[int] = set()
        place = 0
        for prompt in prompts:
            self._firsts.add(place)
            place += prompt.num_choices

    def add(self, piece: Piece) -> None:
        self._sampled_tokens[piece.index] = piece.num_sampled_tokens
        if piece.index in self._firsts:
            self._cached_tokens[piece.index] = piece.num_cached_tokens

    def in_chunk(self) -> Usage | UnsetType | None:
        """The usage field of a chunk before the last."""
        if not self.has_last_chunk:
            return UNSET
        return self.usage() if self._is_continuous else None

    def usage(self) -> Usage:
        return make_usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sum(self._sampled_tokens.values()),
            cached_tokens=sum(self._cached_tokens.values()),
        )


def _finish(svc: Services, delta: wire.Delta) -> FinishReason | None:
    if delta.finish_reason == "error":
        raise EngineError(delta.error or "the engine failed this request; it may be sent again")
    if delta.finish_reason == "abort":
        svc.lifecycle.check_open()
    return delta.finish_reason


async def generate(svc: Services, prompts: Sequence[Admitted]) -> AsyncGenerator[Piece, None]:
    """All choices of all prompts as they come; indices count prompt by prompt."""
    choices = [(admitted, i) for admitted in prompts for i in range(admitted.num_choices)]
    streams = [
        generate_choice(svc, admitted, choice, index=index)
        for index, (admitted, choice) in enumerate(choices)
    ]
    pieces = streams[0] if len(streams) == 1 else _merge(streams)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


async def _merge(
    streams: Sequence[AsyncGenerator[Piece, None]],
) -> AsyncGenerator[Piece, None]:
    """Interleave; the first failure ends all."""
    arrived: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()

    async def pump(stream: AsyncGenerator[Piece, None]) -> None:
        try:
            async with aclosing(stream):
                async for piece in stream:
                    arrived.put_nowait(piece)
        except Exception as error:
            arrived.put_nowait(error)
        else:
            arrived.put_nowait(None)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    try:
        num_open = len(tasks)
        while num_open:
            piece = await arrived.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                num_open -= 1
            else:
                yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
