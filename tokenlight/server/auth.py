# SPDX-License-Identifier: Apache-2.0
"""The API key, compared in constant time, before a byte of the body is read."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenlight.base.errors import InvalidApiKey


class Auth:
    """Lets a request through when its path is open or it carries the key."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, open_paths: Iterable[str]) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            self._key is not None
            and scope["type"] == "http"
            and scope["path"] not in self._open_paths
        ):
            _check(Headers(scope=scope), self._key)
        await self._app(scope, receive, send)


def _check(headers: Headers, key: bytes) -> None:
    sent = _sent_key(headers)
    if sent is None:
        raise InvalidApiKey(
            "this server asks for an API key and the request carries none; "
            "send `Authorization: Bearer KEY` or `x-api-key: KEY`"
        )
    # latin-1 gives back the header's bytes as they came.
    if not hmac.compare_digest(sent.encode("latin-1"), key):
        raise InvalidApiKey("the API key is wrong; send the key that the server was started with")


def _sent_key(headers: Headers) -> str | None:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        return credentials.strip()
    return headers.get("x-api-key")
