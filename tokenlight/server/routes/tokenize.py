# SPDX-License-Identifier: Apache-2.0
"""POST /tokenize."""

from __future__ import annotations

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from tokenlight.base.errors import InvalidRequest
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.prompts import messages_token_ids, text_token_ids, token_texts
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.tokens import Tokenized, TokenizeRequest
from tokenlight.server.services import Services, services

_OF_MESSAGES = ("tools", "reasoning_effort", "chat_template_kwargs", "add_generation_prompt")
_OF_PROMPTS = ("add_special_tokens",)


async def tokenize(request: Request) -> Response:
    svc = services(request)
    body = decode_body(await read_body(request, svc.config.max_body_bytes), TokenizeRequest)
    svc.check_model(body.model)
    notes = Notes()
    token_ids = await _token_ids(svc, body, notes)
    texts = await token_texts(svc, token_ids) if body.return_token_strs else UNSET
    return json_response(
        Tokenized(
            count=len(token_ids),
            max_model_len=svc.engine.facts.max_model_tokens,
            tokens=token_ids,
            token_strs=texts,
        ),
        headers=notes.headers(),
    )


async def _token_ids(svc: Services, body: TokenizeRequest, notes: Notes) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequest("send either 'prompt' or 'messages'", param="prompt")
    _check_kind(body)
    if body.messages is None:
        return await text_token_ids(svc, body.prompt or "", add_bos=body.add_special_tokens)
    return await messages_token_ids(
        svc,
        body.messages,
        notes,
        tools=body.tools or (),
        reasoning_effort=body.reasoning_effort,
        add_generation_prompt=body.add_generation_prompt,
        variables=body.chat_template_kwargs,
    )


def _check_kind(body: TokenizeRequest) -> None:
    """Raises InvalidRequest when what is for prompts comes with messages, or the reverse."""
    others, kind = (_OF_PROMPTS, "prompt") if body.prompt is None else (_OF_MESSAGES, "messages")
    for name in others:
        if getattr(body, name):
            raise InvalidRequest(
                f"{name!r} only goes with {kind!r}; leave it out, or send {kind!r}", param=name
            )


ENDPOINTS = [
    Endpoint(
        path="/tokenize",
        method="POST",
        handler=tokenize,
        summary="The token ids of a text or of messages.",
        request=TokenizeRequest,
        response=Tokenized,
    )
]
