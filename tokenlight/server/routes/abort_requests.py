# SPDX-License-Identifier: Apache-2.0
"""POST /abort_requests: end other people's requests; for admins."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.services import services


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True):
    request_ids: list[str]
    """Ids of answers, or x-request-ids."""


class Aborted(msgspec.Struct, frozen=True, kw_only=True):
    aborted: list[str]
    """Those that were running. Their answers end with finish_reason `abort`."""


async def abort_requests(request: Request) -> Response:
    svc = services(request)
    body = decode_body(await read_body(request, svc.config.max_body_bytes), AbortRequest)
    aborted = []
    for name in body.request_ids:
        found = svc.running.find(name)
        for engine_id in found:
            svc.engine.abort(engine_id)
        if found:
            aborted.append(name)
    return json_response(Aborted(aborted=aborted))


ENDPOINTS = [
    Endpoint(
        path="/abort_requests",
        method="POST",
        handler=abort_requests,
        summary="End running requests.",
        request=AbortRequest,
        response=Aborted,
        is_admin=True,
    )
]
