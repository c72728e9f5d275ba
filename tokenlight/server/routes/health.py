# SPDX-License-Identifier: Apache-2.0
"""GET /health: 200 while a new request would be served, judged now; else 503 and the reason."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.services import Services, services


class Healthy(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


async def get_health(request: Request) -> Response:
    check_health(services(request))
    return json_response(Healthy())


def check_health(svc: Services) -> None:
    """Raises ServerStopping, EngineDead or EngineStalled when a new request would not be served."""
    svc.lifecycle.check_open()
    fault = svc.engine.health()
    if fault is not None:
        raise fault


ENDPOINTS = [
    Endpoint(
        path="/health",
        method="GET",
        handler=get_health,
        summary="Whether a new request would be served now.",
        response=Healthy,
        is_open=True,
    )
]
