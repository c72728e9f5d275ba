# SPDX-License-Identifier: Apache-2.0
"""GET /docs: a page that reads /openapi.json; nothing is fetched from anywhere else."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tokenlight.server.schemas.endpoint import Endpoint

# The page may load from this server only: a proof that it needs nobody else.
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
)


async def get_docs(request: Request) -> Response:
    page = files("tokenlight.server.routes").joinpath("docs.html").read_text(encoding="utf-8")
    return HTMLResponse(page, headers={"content-security-policy": _POLICY})


ENDPOINTS = [
    Endpoint(
        path="/docs",
        method="GET",
        handler=get_docs,
        summary="This API for people.",
        media_type="text/html",
        is_open=True,
    )
]
