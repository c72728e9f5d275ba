# SPDX-License-Identifier: Apache-2.0
"""The application: every route, and the layers that every request passes."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from tokenlight.base.errors import MethodNotAllowed, RouteNotFound
from tokenlight.server.http.auth import Auth
from tokenlight.server.http.trace import Trace
from tokenlight.server.routes import (
    abort_requests,
    chat,
    completions,
    detokenize,
    docs,
    health,
    messages,
    metrics,
    models,
    openapi,
    probes,
    ready,
    reset_prefix_cache,
    responses,
    tokenize,
    version,
)
from tokenlight.server.schemas.endpoint import served_path
from tokenlight.server.schemas.openapi import openapi_document
from tokenlight.server.services import Services

ENDPOINTS = [
    *models.ENDPOINTS,
    *chat.ENDPOINTS,
    *completions.ENDPOINTS,
    *messages.ENDPOINTS,
    *responses.ENDPOINTS,
    *tokenize.ENDPOINTS,
    *detokenize.ENDPOINTS,
    *abort_requests.ENDPOINTS,
    *reset_prefix_cache.ENDPOINTS,
    *health.ENDPOINTS,
    *ready.ENDPOINTS,
    *version.ENDPOINTS,
    *metrics.ENDPOINTS,
    *probes.ENDPOINTS,
    *openapi.ENDPOINTS,
    *docs.ENDPOINTS,
]


def make_app(svc: Services) -> Starlette:
    """An ASGI application around these services."""
    svc.metrics.watch(svc.engine.status, lambda: svc.engine.health() is None)
    app = Starlette(
        routes=[endpoint.route() for endpoint in ENDPOINTS],
        middleware=[
            *_cors(svc.config.allowed_origins),
            Middleware(Trace, metrics=svc.metrics),
            Middleware(
                Auth,
                api_key=svc.config.api_key,
                admin_api_key=svc.config.admin_api_key,
                endpoints=ENDPOINTS,
            ),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.state.services = svc
    app.state.openapi = functools.cache(lambda: openapi_document(ENDPOINTS))
    return app


def _cors(origins: Collection[str]) -> list[Middleware]:
    """What lets these origins' pages in: the outermost layer, for pages must read errors too."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=sorted({endpoint.method for endpoint in ENDPOINTS}),
            allow_headers=["*"],  # keys, and what the clients' libraries say of themselves
            allow_private_network=not {"*", "null"}
            & set(origins),  # from public pages to localhost, for one
            expose_headers=["*"],
        )
    ]


async def _refuse(request: Request, error: Exception) -> NoReturn:
    """Say Starlette's own refusals (no such path, wrong method) as errors of ours."""
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        raise MethodNotAllowed(f"{path} does not answer {method}; send {allowed}")
    raise RouteNotFound(
        f"{method} {path} is not served here; {_meant(request) or 'see /docs for what is'}"
    )


# What a client appends to its base URL, per protocol, where the URL had too much or too little.
_HINTS = (
    ("/v1/v1/", "/v1/", "the client adds /v1 itself: its base URL ends before it"),
    ("//", "/", "the client's base URL ends with a slash too many"),
    ("/", "/v1/", "the client's base URL must end in /v1"),
)


def _meant(request: Request) -> str | None:
    """The path that a wrong base URL has made this one of, and how to mend it; None: who knows."""
    path = served_path(request.scope)
    known = {endpoint.path for endpoint in ENDPOINTS}
    for typed, served, why in _HINTS:
        meant = path.replace(typed, served, 1)
        if meant in known:
            return f"did you mean {meant}? Then {why}"
    return None
