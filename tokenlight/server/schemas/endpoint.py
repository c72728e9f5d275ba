# SPDX-License-Identifier: Apache-2.0
"""One declaration per endpoint: its route, whether it needs the key, its page in /openapi.json."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

Schema = type[msgspec.Struct]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path, a method, and what goes in and out."""

    path: str
    method: Literal["DELETE", "GET", "POST"]
    handler: Callable[[Request], Awaitable[Response | ASGIApp]]
    summary: str
    request: Schema | None = None
    response: Schema | None = None
    event: Schema | None = None
    """What each server-sent event carries, for an endpoint that can stream."""
    media_type: str = "application/json"
    is_open: bool = False
    """Whether it answers without the API key."""
    is_admin: bool = False
    """Whether it wants the admin key."""

    def route(self) -> Route:
        return Route(self.path, self.handler, methods=[self.method])


def served_path(scope: Scope) -> str:
    """A request's path as endpoints have it, without --root-path, which uvicorn puts before it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def json_response(
    body: msgspec.Struct, *, status_code: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status_code,
        headers=headers,
        media_type="application/json",
    )
