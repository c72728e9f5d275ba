# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenlight.base.clock import unix_s
from tokenlight.base.errors import UnsupportedParameter
from tokenlight.server.admission import INLINE_CHARS, Admitted, admit, limit_headers
from tokenlight.server.body import decode_body, read_body
from tokenlight.server.generation import FinishReason, Tally, generate
from tokenlight.server.schemas.chat import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatRequest,
    Message,
)
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.unsupported import CHAT
from tokenlight.server.services import Services, services
from tokenlight.server.sse import DONE, EventStream, sse_event, until_disconnect
from tokenlight.text.chat import chat_token_ids


async def create_chat_completion(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    body = decode_body(await read_body(request, svc.config.max_body_bytes), ChatRequest, CHAT)
    svc.check_model(body.model)
    admitted = admit(
        svc,
        body,
        await _prompt_token_ids(svc, body),
        request_id=f"chatcmpl-{secrets.token_hex(12)}",
        max_tokens=body.max_completion_tokens or body.max_tokens,
        param="messages",
    )
    headers = limit_headers([admitted])
    if body.stream:
        return EventStream(
            _events(svc, admitted, body), headers=headers, on_error=svc.metrics.count_error
        )
    answer = await until_disconnect(request.receive, _collect(svc, admitted))
    return json_response(answer, headers=headers)


async def _prompt_token_ids(svc: Services, body: ChatRequest) -> list[int]:
    for index, message in enumerate(body.messages):
        _refuse_tools(f"messages[{index}]", message)
    messages = msgspec.to_builtins(body.messages)
    tokenise = partial(
        chat_token_ids,
        svc.tokenizer,
        svc.chat_template,
        messages,
        add_generation_prompt=body.add_generation_prompt is not False,
        variables=body.chat_template_kwargs,
    )
    if sum(len(str(m["content"])) for m in messages) <= INLINE_CHARS:
        return tokenise()
    return await asyncio.to_thread(tokenise)


def _refuse_tools(where: str, message: Message) -> None:
    if message.role in ("tool", "function"):
        raise UnsupportedParameter(
            f"{where}.role", advice=f"leave {message.role!r} out: this server calls no tools"
        )
    if message.tool_calls:
        raise UnsupportedParameter(
            f"{where}.tool_calls", advice="leave it out: this server calls no tools"
        )


async def _collect(svc: Services, admitted: Admitted) -> ChatCompletion:
    texts = [""] * admitted.num_choices
    reasons: list[FinishReason] = ["stop"] * admitted.num_choices
    tally = Tally([admitted])
    async with aclosing(generate(svc, [admitted])) as pieces:
        async for piece in pieces:
            tally.add(piece)
            texts[piece.choice] += piece.text
            reasons[piece.choice] = piece.finish_reason or "stop"
    return ChatCompletion(
        id=admitted.request_id,
        created=unix_s(),
        model=svc.model_name,
        choices=[
            ChatChoice(index=i, message=AssistantMessage(content=text), finish_reason=reason)
            for i, (text, reason) in enumerate(zip(texts, reasons, strict=True))
        ],
        usage=tally.usage(),
    )


async def _events(
    svc: Services, admitted: Admitted, body: ChatRequest
) -> AsyncGenerator[bytes, None]:
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    make_chunk = partial(ChatChunk, id=admitted.request_id, created=unix_s(), model=svc.model_name)

    def chunk(index: int, delta: ChatDelta, finish_reason: FinishReason | None = None) -> bytes:
        choice = ChatChunkChoice(index=index, delta=delta, finish_reason=finish_reason)
        return sse_event(make_chunk(choices=[choice], usage=None if has_usage else UNSET))

    opened: set[int] = set()
    tally = Tally([admitted])
    async with aclosing(generate(svc, [admitted])) as pieces:
        async for piece in pieces:
            tally.add(piece)
            events = b""
            if piece.choice not in opened:
                opened.add(piece.choice)
                events += chunk(piece.choice, ChatDelta(role="assistant", content=""))
            if piece.text:
                events += chunk(piece.choice, ChatDelta(content=piece.text))
            if piece.finish_reason is not None:
                events += chunk(piece.choice, ChatDelta(), piece.finish_reason)
            yield events
    if has_usage:
        yield sse_event(make_chunk(choices=[], usage=tally.usage()))
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
