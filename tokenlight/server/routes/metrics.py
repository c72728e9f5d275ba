# SPDX-License-Identifier: Apache-2.0
"""GET /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.metrics import CONTENT_TYPE
from tokenlight.server.schemas.endpoint import Endpoint
from tokenlight.server.services import services


async def get_metrics(request: Request) -> Response:
    return Response(services(request).metrics.text(), headers={"content-type": CONTENT_TYPE})


ENDPOINTS = [
    Endpoint(
        path="/metrics",
        method="GET",
        handler=get_metrics,
        summary="Counters for Prometheus.",
        media_type="text/plain",
        is_open=True,
    )
]
