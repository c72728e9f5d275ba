# SPDX-License-Identifier: Apache-2.0
"""GET /version."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenlight import __version__
from tokenlight.server.schemas.endpoint import Endpoint, json_response


class Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str


async def get_version(request: Request) -> Response:
    return json_response(Version(version=__version__))


ENDPOINTS = [
    Endpoint(
        path="/version",
        method="GET",
        handler=get_version,
        summary="The server's version.",
        response=Version,
        is_open=True,
    )
]
