# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions."""

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
from tokenlight.server.admission import Admitted, admit, limit_headers
from tokenlight.server.body import decode_body, read_body
from tokenlight.server.generation import FinishReason, Piece, Tally, generate
from tokenlight.server.logprobs import chat_logprobs
from tokenlight.server.prompts import messages_token_ids
from tokenlight.server.schemas.chat import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatRequest,
)
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.logprobs import ChatLogprobs
from tokenlight.server.schemas.parameters import StreamOptions
from tokenlight.server.schemas.unsupported import CHAT
from tokenlight.server.services import Services, request_id, services
from tokenlight.server.sse import DONE, EventStream, sse_event, until_disconnect


async def create_chat_completion(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    body = decode_body(await read_body(request, svc.config.max_body_bytes), ChatRequest, CHAT)
    svc.check_model(body.model)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest(
            "'top_logprobs' only goes with \"logprobs\": true; send both or neither",
            param="top_logprobs",
        )
    response_id = f"chatcmpl-{secrets.token_hex(12)}"
    admitted = admit(
        svc,
        body,
        await messages_token_ids(
            svc,
            body.messages,
            add_generation_prompt=body.add_generation_prompt,
            variables=body.chat_template_kwargs,
        ),
        request_id=response_id,
        names=(response_id, request_id(request)),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        param="messages",
    )
    headers = limit_headers([admitted])
    if body.stream:
        events = _events(svc, admitted, body.stream_options)
        return EventStream(events, headers=headers, on_error=svc.metrics.count_error)
    answer = await until_disconnect(request.receive, _collect(svc, admitted))
    return json_response(answer, headers=headers)


async def _collect(svc: Services, admitted: Admitted) -> ChatCompletion:
    texts = [""] * admitted.num_choices
    pieces_of: list[list[Piece]] = [[] for _ in texts]
    reasons: list[FinishReason] = ["stop"] * admitted.num_choices
    tally = Tally([admitted])
    async with aclosing(generate(svc, [admitted])) as pieces:
        async for piece in pieces:
            tally.add(piece)
            texts[piece.index] += piece.text
            pieces_of[piece.index].append(piece)
            reasons[piece.index] = piece.finish_reason or "stop"
    return ChatCompletion(
        id=admitted.request_id,
        created=unix_s(),
        model=svc.model_name,
        choices=[
            ChatChoice(
                index=i,
                message=AssistantMessage(content=text),
                finish_reason=reasons[i],
                token_ids=_ids(pieces_of[i]) if admitted.returns_ids else UNSET,
                logprobs=_logprobs(svc, admitted, pieces_of[i]),
            )
            for i, text in enumerate(texts)
        ],
        usage=tally.usage(),
        prompt_token_ids=list(admitted.prompt_token_ids) if admitted.returns_ids else UNSET,
    )


def _ids(pieces: Sequence[Piece]) -> list[int]:
    return [token_id for piece in pieces for token_id in piece.token_ids]


def _logprobs(svc: Services, admitted: Admitted, pieces: Sequence[Piece]) -> ChatLogprobs | None:
    return chat_logprobs(svc.tokenizer, pieces) if admitted.tells_logprobs else None


async def _events(
    svc: Services, admitted: Admitted, options: StreamOptions | None
) -> AsyncGenerator[bytes, None]:
    tally = Tally([admitted], options)
    chunks = _Chunks(svc, admitted, tally)
    async with aclosing(generate(svc, [admitted])) as pieces:
        async for piece in pieces:
            tally.add(piece)
            yield chunks.encode(piece)
    if tally.has_last_chunk:
        yield sse_event(chunks.make(choices=[], usage=tally.usage()))
    yield DONE


class _Chunks:
    """Pieces to events: a choice opens with its role, and closes with its finish reason."""

    def __init__(self, svc: Services, admitted: Admitted, tally: Tally) -> None:
        self.make = partial(
            ChatChunk, id=admitted.request_id, created=unix_s(), model=svc.model_name
        )
        self._svc = svc
        self._admitted = admitted
        self._tally = tally
        self._opened: set[int] = set()

    def encode(self, piece: Piece) -> bytes:
        events = b""
        if piece.index not in self._opened:
            events += self._open(piece.index)
        tells_tokens = self._admitted.returns_ids or self._admitted.tells_logprobs
        if piece.text or (tells_tokens and piece.token_ids):
            events += self._chunk(
                ChatChunkChoice(
                    index=piece.index,
                    delta=ChatDelta(content=piece.text),
                    token_ids=piece.token_ids if self._admitted.returns_ids else UNSET,
                    logprobs=_logprobs(self._svc, self._admitted, [piece]),
                )
            )
        if piece.finish_reason is not None:
            events += self._chunk(
                ChatChunkChoice(
                    index=piece.index, delta=ChatDelta(), finish_reason=piece.finish_reason
                )
            )
        return events

    def _open(self, index: int) -> bytes:
        is_first = not self._opened
        self._opened.add(index)
        shows_prompt = is_first and self._admitted.returns_ids
        return sse_event(
            self.make(
                choices=[
                    ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
                ],
                usage=self._tally.in_chunk(),
                prompt_token_ids=list(self._admitted.prompt_token_ids) if shows_prompt else UNSET,
            )
        )

    def _chunk(self, choice: ChatChunkChoice) -> bytes:
        return sse_event(self.make(choices=[choice], usage=self._tally.in_chunk()))


ENDPOINTS = [
    Endpoint(
        path="/v1/chat/completions",
        method="POST",
        handler=create_chat_completion,
        summary="Answer a conversation.",
        request=ChatRequest,
        response=ChatCompletion,
        event=ChatChunk,
    )
]
