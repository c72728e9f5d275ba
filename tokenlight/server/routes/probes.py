# SPDX-License-Identifier: Apache-2.0
"""What clients ask beside their work: whether anybody is there, whether their events are taken.

The events of Claude Code are for its maker; they are accepted, not read and not kept.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.schemas.endpoint import Endpoint


async def say_hello(request: Request) -> Response:
    return Response("TokenLight\n", media_type="text/plain")


async def drop_events(request: Request) -> Response:
    return Response(status_code=204)


ENDPOINTS = [
    *(
        Endpoint(
            path=path,
            method="GET",  # a GET route answers HEAD as well
            handler=say_hello,
            summary="Whether anybody is there.",
            media_type="text/plain",
            is_open=True,
        )
        for path in ("/", "/api/hello")
    ),
    Endpoint(
        path="/api/event_logging/batch",
        method="POST",
        handler=drop_events,
        summary="Where Claude Code sends its events; they are not kept.",
        is_open=True,
    ),
]
