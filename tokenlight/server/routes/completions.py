# SPDX-License-Identifier: Apache-2.0
"""POST /v1/completions."""

from __future__ import annotations

import asyncio
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
from tokenlight.server.admission import INLINE_CHARS, Admitted, admit, limit_headers
from tokenlight.server.body import decode_body, read_body
from tokenlight.server.generation import FinishReason, Tally, generate
from tokenlight.server.schemas.completion import (
    DEFAULT_MAX_TOKENS,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionRequest,
)
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.unsupported import COMPLETION
from tokenlight.server.services import Services, services
from tokenlight.server.sse import DONE, EventStream, sse_event, until_disconnect


async def create_completion(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, CompletionRequest, COMPLETION)
    svc.check_model(body.model)
    response_id = f"cmpl-{secrets.token_hex(12)}"
    prompts = [
        admit(
            svc,
            body,
            token_ids,
            request_id=f"{response_id}-{i}",
            max_tokens=body.max_tokens or DEFAULT_MAX_TOKENS,
            param="prompt",
        )
        for i, token_ids in enumerate(await _prompts_token_ids(svc, body))
    ]
    svc.check_num_choices(sum(p.num_choices for p in prompts))
    headers = limit_headers(prompts)
    if body.stream:
        events = _events(svc, response_id, prompts, body)
        return EventStream(events, headers=headers, on_error=svc.metrics.count_error)
    answer = await until_disconnect(request.receive, _collect(svc, response_id, prompts))
    return json_response(answer, headers=headers)


async def _prompts_token_ids(svc: Services, body: CompletionRequest) -> list[list[int]]:
    """`prompt` is one text, one list of ids, or a list of either: as one list of ids per prompt."""
    asked: Sequence[str | int | list[int]] = (
        [body.prompt] if isinstance(body.prompt, str) else body.prompt
    )
    if asked and all(isinstance(p, int) for p in asked):
        asked = [[p for p in asked if isinstance(p, int)]]
    prompts: list[list[int]] = []
    for i, prompt in enumerate(asked):
        if isinstance(prompt, int):
            raise InvalidRequest(
                f"'prompt[{i}]' is a token id among other kinds; send one list of ids, or a list "
                f"of texts and lists of ids",
                param=f"prompt[{i}]",
            )
        prompts.append(
            await _encode(svc, prompt)
            if isinstance(prompt, str)
            else _checked_ids(prompt, svc.engine.facts.vocab_size)
        )
    if not prompts:
        raise InvalidRequest("'prompt' is an empty list: send at least 1 prompt", param="prompt")
    return prompts


async def _encode(svc: Services, text: str) -> list[int]:
    if len(text) <= INLINE_CHARS:
        return svc.tokenizer.encode(text)
    return await asyncio.to_thread(svc.tokenizer.encode, text)


def _checked_ids(token_ids: list[int], vocab_size: int) -> list[int]:
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"'prompt' has the token id {token_id}, this model has 0 to {vocab_size - 1}; "
                f"tokenise with this model's tokenizer",
                param="prompt",
            )
    return token_ids


async def _collect(svc: Services, response_id: str, prompts: Sequence[Admitted]) -> Completion:
    num_choices = sum(p.num_choices for p in prompts)
    texts = [""] * num_choices
    reasons: list[FinishReason | None] = [None] * num_choices
    tally = Tally(prompts)
    async with aclosing(generate(svc, prompts)) as pieces:
        async for piece in pieces:
            tally.add(piece)
            texts[piece.choice] += piece.text
            reasons[piece.choice] = piece.finish_reason
    return Completion(
        id=response_id,
        created=unix_s(),
        model=svc.model_name,
        choices=[
            CompletionChoice(index=i, text=text, finish_reason=reason)
            for i, (text, reason) in enumerate(zip(texts, reasons, strict=True))
        ],
        usage=tally.usage(),
    )


async def _events(
    svc: Services, response_id: str, prompts: Sequence[Admitted], body: CompletionRequest
) -> AsyncGenerator[bytes, None]:
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    make_chunk = partial(CompletionChunk, id=response_id, created=unix_s(), model=svc.model_name)
    tally = Tally(prompts)
    async with aclosing(generate(svc, prompts)) as pieces:
        async for piece in pieces:
            tally.add(piece)
            choice = CompletionChoice(
                index=piece.choice, text=piece.text, finish_reason=piece.finish_reason
            )
            yield sse_event(make_chunk(choices=[choice], usage=None if has_usage else UNSET))
    if has_usage:
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
