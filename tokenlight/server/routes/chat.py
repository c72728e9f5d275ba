# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenlight.base.errors import InvalidRequest
from tokenlight.server.admission import Admitted, admit, constrained, limit_headers
from tokenlight.server.answer.answer import Ended, readings
from tokenlight.server.answer.explain import prefix_headers
from tokenlight.server.answer.prompt import Prompt, make_prompt
from tokenlight.server.chat.decode import decode_conversation
from tokenlight.server.chat.encode import ChatEncoder
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import KnownTool, decode_tools
from tokenlight.server.generation import Piece, Tally
from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.http.sse import DONE, EventStream, until_disconnect
from tokenlight.server.schemas.chat import ChatChunk, ChatCompletion, ChatRequest
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.unsupported import CHAT
from tokenlight.server.services import Services, request_id, services


async def create_chat_completion(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    body = decode_body(await read_body(request, svc.config.max_body_bytes), ChatRequest, CHAT)
    svc.check_model(body.model)
    svc.check_num_choices(body.n)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest(
            "'top_logprobs' only goes with \"logprobs\": true; send both or neither",
            param="top_logprobs",
        )
    notes = Notes()
    known = decode_tools(body.tools or (), notes)
    prompt = await make_prompt(svc, decode_conversation(body, known, notes), notes)
    response_id = f"chatcmpl-{secrets.token_hex(12)}"
    admitted = constrained(
        admit(
            svc,
            # The parser reads special tokens; it leaves them out unless they are asked for.
            msgspec.structs.replace(body, skip_special_tokens=False),
            prompt.token_ids,
            request_id=response_id,
            names=(response_id, request_id(request)),
            max_tokens=body.max_completion_tokens or body.max_tokens,
            param="messages",
        ),
        prompt.grammar,
        prompt.thinking,
    )
    answering = _Answering(svc, body, prompt, admitted, known)
    headers = {
        **limit_headers([admitted]),
        **notes.headers(),
        **await prefix_headers(svc, request, prompt),
    }
    if body.stream:
        events = answering.events()
        return EventStream(events, headers=headers, on_error=svc.metrics.count_error)
    answer = await until_disconnect(request.receive, answering.whole())
    return json_response(answer, headers=headers)


class _Answering:
    """One request's choices, whole or streamed."""

    def __init__(
        self,
        svc: Services,
        body: ChatRequest,
        prompt: Prompt,
        admitted: Admitted,
        known: Mapping[str, KnownTool],
    ) -> None:
        is_raw = body.skip_special_tokens is False
        self._readings = readings(svc, admitted, prompt, is_raw=is_raw)
        self._num_choices = admitted.num_choices
        self._tally = Tally([admitted], body.stream_options)
        self._encoder = ChatEncoder(svc, admitted, self._tally, known)

    async def whole(self) -> ChatCompletion:
        pieces_of: list[list[Piece]] = [[] for _ in range(self._num_choices)]
        endings: dict[int, Ended] = {}
        async with aclosing(self._readings) as read:
            async for reading in read:
                piece = reading.piece
                self._tally.add(piece)
                pieces_of[piece.index].append(piece)
                if reading.ended is not None:
                    endings[piece.index] = reading.ended
        return self._encoder.completion([endings[i] for i in sorted(endings)], pieces_of)

    async def events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._readings) as read:
            async for reading in read:
                self._tally.add(reading.piece)
                if events := self._encoder.chunks(reading.piece, reading.changes, reading.ended):
                    yield events
        if self._tally.has_last_chunk:
            yield self._encoder.usage_chunk()
        yield DONE


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
