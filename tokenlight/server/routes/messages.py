# SPDX-License-Identifier: Apache-2.0
"""POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's protocol."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenlight.server.admission import admit, constrained, limit_headers
from tokenlight.server.answer.answer import answer, encoded, whole_answer
from tokenlight.server.answer.explain import prefix_headers
from tokenlight.server.answer.prompt import Prompt, make_prompt
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.http.sse import EventStream, until_disconnect
from tokenlight.server.messages.decode import decode_conversation
from tokenlight.server.messages.encode import MessagesStream, message_answer
from tokenlight.server.messages.schema import (
    CountTokensRequest,
    MessageAnswer,
    MessagesRequest,
    PromptFields,
    StreamEvent,
    TokenCount,
)
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.parameters import GenerationFields
from tokenlight.server.schemas.unsupported import MESSAGES
from tokenlight.server.services import Services, request_id, services


async def create_message(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, MessagesRequest, MESSAGES)
    notes = Notes()
    prompt = await _prompt(svc, body, notes)
    message_id = f"msg_{secrets.token_hex(12)}"
    admitted = constrained(
        admit(
            svc,
            _generation_fields(body),
            prompt.token_ids,
            request_id=message_id,
            names=(message_id, request_id(request)),
            # A client that asks for none warms the cache: it gets the least there is.
            max_tokens=None if body.max_tokens is None else max(body.max_tokens, 1),
            param="messages",
        ),
        prompt.grammar,
        prompt.thinking,
    )
    headers = {
        **limit_headers([admitted]),
        **notes.headers(),
        **await prefix_headers(svc, request, prompt),
    }
    shows_thinking = body.thinking is None or body.thinking.display != "omitted"
    if body.stream:
        stream = MessagesStream(
            message_id,
            svc.model_name,
            num_prompt_tokens=len(prompt.token_ids),
            shows_thinking=shows_thinking,
        )
        return EventStream(
            encoded(answer(svc, admitted, prompt), stream.event),
            headers=headers,
            on_error=svc.metrics.count_error,
            voice=stream,
        )
    ended = await until_disconnect(request.receive, whole_answer(svc, admitted, prompt))
    made = message_answer(
        message_id,
        svc.model_name,
        ended,
        num_prompt_tokens=len(prompt.token_ids),
        shows_thinking=shows_thinking,
    )
    return json_response(made, headers=headers)


async def count_message_tokens(request: Request) -> Response:
    svc = services(request)
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, CountTokensRequest, MESSAGES)
    notes = Notes()
    prompt = await _prompt(svc, body, notes)
    return json_response(TokenCount(input_tokens=len(prompt.token_ids)), headers=notes.headers())


async def _prompt(svc: Services, body: PromptFields, notes: Notes) -> Prompt:
    svc.check_model(body.model)
    return await make_prompt(svc, decode_conversation(body, notes), notes)


def _generation_fields(body: MessagesRequest) -> GenerationFields:
    return GenerationFields(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences or None,
        stream=body.stream,
        seed=body.seed,
        skip_special_tokens=False,  # the parser reads them
    )


ENDPOINTS = [
    Endpoint(
        path="/v1/messages",
        method="POST",
        handler=create_message,
        summary="Answer a conversation, in Anthropic's protocol.",
        request=MessagesRequest,
        response=MessageAnswer,
        event=StreamEvent,
    ),
    Endpoint(
        path="/v1/messages/count_tokens",
        method="POST",
        handler=count_message_tokens,
        summary="How many prompt tokens a request to /v1/messages has.",
        request=CountTokensRequest,
        response=TokenCount,
    ),
]
