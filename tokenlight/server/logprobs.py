# SPDX-License-Identifier: Apache-2.0
"""From the engine's log-probabilities to the protocols' two shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from tokenlight import wire
from tokenlight.server.admission import Admitted
from tokenlight.server.generation import Piece
from tokenlight.server.schemas.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    ContentLogprob,
    PromptLogprob,
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


def echoed_logprobs(
    tokenizer: Tokenizer, admitted: Admitted, pieces: Sequence[Piece]
) -> CompletionLogprobs:
    """Of the prompt that stands before the text of these pieces, a choice's first."""
    ids, told = admitted.prompt_token_ids, pieces[0].prompt_logprobs
    if told is None:  # aborted before its prompt was computed
        return CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
    offsets = [0]
    for token_id in ids:  # a token that the text leaves out takes no place in it
        shown = tokenizer.decode((token_id,), with_special=admitted.with_special)
        offsets.append(offsets[-1] + len(shown))
    num_top = admitted.sampling.num_logprobs
    return CompletionLogprobs(
        text_offset=offsets[:-1],
        token_logprobs=[None, *(_finite(t.logprob) for t in told)],
        tokens=[_text(tokenizer, token_id) for token_id in ids],
        top_logprobs=[
            None,
            *(_top(tokenizer, i, t, num_top) for i, t in zip(ids[1:], told, strict=True)),
        ],
    )


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        text_offset=first.text_offset + second.text_offset,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        tokens=first.tokens + second.tokens,
        top_logprobs=first.top_logprobs + second.top_logprobs,
    )


def prompt_logprobs(
    tokenizer: Tokenizer, admitted: Admitted, pieces: Sequence[Piece]
) -> list[dict[str, PromptLogprob] | None] | UnsetType:
    """As vLLM tells them, of the prompt of a choice with these pieces; by token id."""
    num_top = admitted.num_prompt_logprobs
    told = pieces[0].prompt_logprobs
    if num_top is None or told is None:
        return UNSET
    ids = admitted.prompt_token_ids
    return [
        None,
        *(_ranked(tokenizer, i, t, num_top) for i, t in zip(ids[1:], told, strict=True)),
    ]


def _ranked(
    tokenizer: Tokenizer, token_id: int, told: wire.PromptLogprobs, num_top: int
) -> dict[str, PromptLogprob]:
    """The token, then the likeliest ones."""
    top = enumerate(_likeliest(told, num_top), 1)
    entries = [(token_id, told.logprob, told.rank)]
    entries += [(i, logprob, rank) for rank, (i, logprob) in top if i != token_id]
    return {
        str(i): PromptLogprob(
            logprob=_finite(logprob), rank=rank, decoded_token=_text(tokenizer, i)
        )
        for i, logprob, rank in entries
    }


def _told(pieces: Sequence[Piece]) -> list[tuple[int, wire.TokenLogprobs]]:
    return [pair for p in pieces for pair in zip(p.token_ids, p.logprobs, strict=True)]


def _top(
    tokenizer: Tokenizer, token_id: int, told: wire.TokenLogprobs, num_top: int | None = None
) -> dict[str, float]:
    """The likeliest tokens and, as OpenAI has it, the token itself wherever it stands."""
    top = {
        _text(tokenizer, top_id): _finite(logprob) for top_id, logprob in _likeliest(told, num_top)
    }
    return top | {_text(tokenizer, token_id): _finite(told.logprob)}


def _likeliest(told: wire.TokenLogprobs, num_top: int | None) -> Iterator[tuple[int, float]]:
    return zip(told.top_token_ids[:num_top], told.top_logprobs[:num_top], strict=True)


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode((token_id,), with_special=True)


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
