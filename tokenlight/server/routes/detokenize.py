# SPDX-License-Identifier: Apache-2.0
"""POST /detokenize."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.prompts import checked_ids, text_of
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.tokens import Detokenized, DetokenizeRequest
from tokenlight.server.services import services


async def detokenize(request: Request) -> Response:
    svc = services(request)
    body = decode_body(await read_body(request, svc.config.max_body_bytes), DetokenizeRequest)
    svc.check_model(body.model)
    token_ids = checked_ids(svc, body.tokens, "tokens")
    return json_response(Detokenized(prompt=await text_of(svc, token_ids)))


ENDPOINTS = [
    Endpoint(
        path="/detokenize",
        method="POST",
        handler=detokenize,
        summary="The text of token ids, special tokens included.",
        request=DetokenizeRequest,
        response=Detokenized,
    )
]
