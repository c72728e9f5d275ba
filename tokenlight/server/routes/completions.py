# SPDX-License-Identifier: Apache-2.0
"""POST /v1/completions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenlight.base.clock import unix_s
from tokenlight.base.errors import InvalidRequest
from tokenlight.server.admission import Admitted, admit, constrained, limit_headers
from tokenlight.server.decoding.shapes import decode_shape, shape_grammar
from tokenlight.server.generation import FinishReason, Piece, Tally, generate, token_ids_of
from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.http.sse import DONE, EventStream, sse_event, until_disconnect
from tokenlight.server.logprobs import (
    completion_logprobs,
    echoed_logprobs,
    joined,
    prompt_logprobs,
)
from tokenlight.server.prompts import checked_ids, text_token_ids
from tokenlight.server.schemas.completion import (
    DEFAULT_MAX_TOKENS,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionRequest,
)
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.logprobs import CompletionLogprobs
from tokenlight.server.schemas.parameters import StreamOptions
from tokenlight.server.schemas.unsupported import COMPLETION
from tokenlight.server.services import Services, request_id, services


async def create_completion(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, CompletionRequest, COMPLETION)
    svc.check_model(body.model)
    asked = _asked(body.prompt)
    svc.check_num_choices(body.n, num_prompts=len(asked))
    response_id = f"cmpl-{secrets.token_hex(12)}"
    shape = decode_shape(body)
    grammar = None if shape is None else await shape_grammar(shape)
    prompts = [
        constrained(
            admit(
                svc,
                body,
                token_ids,
                request_id=f"{response_id}-{i}",
                names=(response_id, request_id(request)),
                max_tokens=body.max_tokens or DEFAULT_MAX_TOKENS,
                param="prompt",
            ),
            grammar,
        )
        for i, token_ids in enumerate(await _prompts_token_ids(svc, asked))
    ]
    headers = limit_headers(prompts)
    echoes = _echoes(svc, body, prompts)
    if body.stream:
        events = _events(svc, response_id, prompts, echoes, body.stream_options)
        return EventStream(events, headers=headers, on_error=svc.metrics.count_error)
    answer = await until_disconnect(request.receive, _collect(svc, response_id, prompts, echoes))
    return json_response(answer, headers=headers)


def _asked(sent: str | Sequence[str | int | list[int]]) -> Sequence[str | int | list[int]]:
    """`prompt` is one text, one list of ids, or a list of either: as a list of prompts."""
    if isinstance(sent, str):
        return [sent]
    ids = [p for p in sent if isinstance(p, int)]
    return [ids] if ids and len(ids) == len(sent) else sent


async def _prompts_token_ids(
    svc: Services, asked: Sequence[str | int | list[int]]
) -> list[list[int]]:
    prompts: list[list[int]] = []
    for i, prompt in enumerate(asked):
        if isinstance(prompt, int):
            raise InvalidRequest(
                f"'prompt[{i}]' is a token id among other kinds; send one list of ids, or a list "
                f"of texts and lists of ids",
                param=f"prompt[{i}]",
            )
        prompts.append(
            await text_token_ids(svc, prompt)
            if isinstance(prompt, str)
            else checked_ids(svc, prompt, "prompt")
        )
    if not prompts:
        raise InvalidRequest("'prompt' is an empty list: send at least 1 prompt", param="prompt")
    return prompts


def _echoes(
    svc: Services, body: CompletionRequest, prompts: Sequence[Admitted]
) -> list[str | None]:
    """What stands before each choice's text: its prompt, or None."""
    if not body.echo:
        return [None] * sum(p.num_choices for p in prompts)
    return [
        svc.tokenizer.decode(prompt.prompt_token_ids, with_special=prompt.with_special)
        for prompt in prompts
        for _ in range(prompt.num_choices)
    ]


async def _collect(
    svc: Services, response_id: str, prompts: Sequence[Admitted], echoes: Sequence[str | None]
) -> Completion:
    texts = [echo or "" for echo in echoes]
    pieces_of: list[list[Piece]] = [[] for _ in texts]
    reasons: list[FinishReason | None] = [None for _ in texts]
    tally = Tally(prompts)
    async with aclosing(generate(svc, prompts)) as pieces:
        async for piece in pieces:
            tally.add(piece)
            texts[piece.index] += piece.text
            pieces_of[piece.index].append(piece)
            reasons[piece.index] = piece.finish_reason
    owners = [prompt for prompt in prompts for _ in range(prompt.num_choices)]
    return Completion(
        id=response_id,
        created=unix_s(),
        model=svc.model_name,
        choices=[
            CompletionChoice(
                index=i,
                text=texts[i],
                finish_reason=reasons[i],
                token_ids=token_ids_of(pieces_of[i]) if owner.returns_ids else UNSET,
                logprobs=_logprobs(
                    svc,
                    owner,
                    pieces_of[i],
                    offset_chars=len(echoes[i] or ""),
                    is_echoed=echoes[i] is not None,
                ),
                prompt_token_ids=list(owner.prompt_token_ids) if owner.returns_ids else UNSET,
                prompt_logprobs=prompt_logprobs(svc.tokenizer, owner, pieces_of[i]),
            )
            for i, owner in enumerate(owners)
        ],
        usage=tally.usage(),
    )


def _logprobs(
    svc: Services,
    owner: Admitted,
    pieces: Sequence[Piece],
    *,
    offset_chars: int,
    is_echoed: bool,
) -> CompletionLogprobs | None:
    """Of these pieces' tokens; of the prompt's before them, if it is echoed."""
    if not owner.tells_logprobs:
        return None
    answered = completion_logprobs(svc.tokenizer, pieces, offset_chars=offset_chars)
    if not is_echoed:
        return answered
    return joined(echoed_logprobs(svc.tokenizer, owner, pieces), answered)


async def _events(
    svc: Services,
    response_id: str,
    prompts: Sequence[Admitted],
    echoes: Sequence[str | None],
    options: StreamOptions | None,
) -> AsyncGenerator[bytes, None]:
    make_chunk = partial(CompletionChunk, id=response_id, created=unix_s(), model=svc.model_name)
    owners = [prompt for prompt in prompts for _ in range(prompt.num_choices)]
    opened: set[int] = set()
    offsets = [len(echo or "") for echo in echoes]
    tally = Tally(prompts, options)
    async with aclosing(generate(svc, prompts)) as pieces:
        async for piece in pieces:
            tally.add(piece)
            owner, is_first = owners[piece.index], piece.index not in opened
            opened.add(piece.index)
            echo = echoes[piece.index] if is_first else None
            choice = CompletionChoice(
                index=piece.index,
                text=(echo or "") + piece.text,
                finish_reason=piece.finish_reason,
                token_ids=piece.token_ids if owner.returns_ids else UNSET,
                logprobs=_logprobs(
                    svc,
                    owner,
                    [piece],
                    offset_chars=offsets[piece.index],
                    is_echoed=echo is not None,
                ),
                prompt_token_ids=(
                    list(owner.prompt_token_ids) if is_first and owner.returns_ids else UNSET
                ),
            )
            if choice.logprobs is not None:
                num_echoed = len(choice.logprobs.tokens) - len(piece.token_ids)
                offsets[piece.index] += sum(map(len, choice.logprobs.tokens[num_echoed:]))
            yield sse_event(make_chunk(choices=[choice], usage=tally.in_chunk()))
    if tally.has_last_chunk:
        yield sse_event(make_chunk(choices=[], usage=tally.usage()))
    yield DONE


ENDPOINTS = [
    Endpoint(
        path="/v1/completions",
        method="POST",
        handler=create_completion,
        summary="Continue a text.",
        request=CompletionRequest,
        response=Completion,
        event=CompletionChunk,
    )
]
