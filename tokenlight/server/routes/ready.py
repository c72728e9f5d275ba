# SPDX-License-Identifier: Apache-2.0
"""GET /ready: what a load balancer asks; 429 while the server is healthy and full."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenlight.base.errors import Overloaded
from tokenlight.server.routes.health import check_health
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.services import services


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ready"] = "ready"
    unfinished: int
    """Requests in the engine."""


async def get_ready(request: Request) -> Response:
    svc = services(request)
    check_health(svc)
    num_unfinished = svc.engine.num_unfinished
    if num_unfinished >= svc.config.max_waiting:
        raise Overloaded(
            f"{num_unfinished} requests are unfinished, this server holds "
            f"{svc.config.max_waiting}; send new ones to another server, or again later"
        )
    return json_response(Readiness(unfinished=num_unfinished))


ENDPOINTS = [
    Endpoint(
        path="/ready",
        method="GET",
        handler=get_ready,
        summary="Whether new requests should be sent here.",
        response=Readiness,
        is_open=True,
    )
]
