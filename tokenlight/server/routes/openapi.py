# SPDX-License-Identifier: Apache-2.0
"""GET /openapi.json."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenlight.server.schemas.endpoint import Endpoint


async def get_openapi(request: Request) -> Response:
    return JSONResponse(request.app.state.openapi())


ENDPOINTS = [
    Endpoint(
        path="/openapi.json",
        method="GET",
        handler=get_openapi,
        summary="This document.",
        is_open=True,
    )
]
