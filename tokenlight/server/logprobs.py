# SPDX-License-Identifier: Apache-2.0
"""From the engine's log-probabilities to the protocols' two shapes."""

from __future__ import annotations

from collections.abc import Sequence

from tokenlight import wire
from tokenlight.server.generation import Piece
from tokenlight.server.schemas.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    ContentLogprob,
    TopLogprob,
)
from tokenlight.text import Tokenizer

# JSON has no infinity; OpenAI says this of what cannot be.
_LEAST = -9999.0


def chat_logprobs(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> ChatLogprobs:
    """Of the tokens that came in these pieces."""
    return ChatLogprobs(
        content=[
            ContentLogprob(
                token=_text(tokenizer, token_id),
                logprob=_finite(told.logprob),
                bytes=list(tokenizer.token_bytes(token_id)),
                top_logprobs=[
                    TopLogprob(
                        token=_text(tokenizer, top_id),
                        logprob=_finite(logprob),
                        bytes=list(tokenizer.token_bytes(top_id)),
                    )
                    for top_id, logprob in zip(told.top_token_ids, told.top_logprobs, strict=True)
                ],
            )
            for token_id, told in _told(pieces)
        ]
    )


def completion_logprobs(
    tokenizer: Tokenizer, pieces: Sequence[Piece], *, offset_chars: int
) -> CompletionLogprobs:
    """Of the tokens that came in these pieces, whose text begins at `offset_chars`."""
    told = _told(pieces)
    tokens = [_text(tokenizer, token_id) for token_id, _ in told]
    offsets = [offset_chars]
    for token in tokens:
        offsets.append(offsets[-1] + len(token))
    return CompletionLogprobs(
        text_offset=offsets[:-1],
        token_logprobs=[_finite(t.logprob) for _, t in told],
        tokens=tokens,
        top_logprobs=[_top(tokenizer, token_id, t) for token_id, t in told],
    )


def _told(pieces: Sequence[Piece]) -> list[tuple[int, wire.TokenLogprobs]]:
    return [pair for p in pieces for pair in zip(p.token_ids, p.logprobs, strict=True)]


def _top(tokenizer: Tokenizer, token_id: int, told: wire.TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens and, as OpenAI has it, the sampled one wherever it stands."""
    top = {
        _text(tokenizer, top_id): _finite(logprob)
        for top_id, logprob in zip(told.top_token_ids, told.top_logprobs, strict=True)
    }
    return top | {_text(tokenizer, token_id): _finite(told.logprob)}


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode((token_id,), with_special=True)


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
