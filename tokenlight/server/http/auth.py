# SPDX-License-Identifier: Apache-2.0
"""API keys, compared in constant time, before a byte of the body is read.

Open endpoints ask for none, admin endpoints for the admin key, all others for the API key (the
admin key opens them too). Without an admin key, admin endpoints are closed.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenlight.base.errors import InvalidApiKey
from tokenlight.server.schemas.endpoint import Endpoint, served_path
from tokenlight.server.services import sent_key


class Auth:
    """Lets a request through when its endpoint is open or it carries the key."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        admin_api_key: str | None,
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._app = app
        self._admin_keys = _keys(admin_api_key)
        self._keys = [*_keys(api_key), *self._admin_keys] if api_key is not None else []
        self._open_paths = frozenset(e.path for e in endpoints if e.is_open)
        self._admin_paths = frozenset(e.path for e in endpoints if e.is_admin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = served_path(scope)
            if path in self._admin_paths:
                if not self._admin_keys:
                    raise InvalidApiKey(
                        f"{path} is closed: this server was started without --admin-api-key"
                    )
                _check(Headers(scope=scope), self._admin_keys)
            elif self._keys and path not in self._open_paths:
                _check(Headers(scope=scope), self._keys)
        await self._app(scope, receive, send)


def _keys(key: str | None) -> list[bytes]:
    return [] if key is None else [key.encode(errors="surrogateescape")]


def _check(headers: Headers, keys: Sequence[bytes]) -> None:
    text = sent_key(headers)
    if text is None:
        raise InvalidApiKey(
            "this server asks for an API key and the request carries none; "
            "send `Authorization: Bearer KEY` or `x-api-key: KEY`"
        )
    sent = text.encode("latin-1")  # the header's bytes as they came
    # Each key is compared, whether or not one before it was right.
    matches = [hmac.compare_digest(sent, key) for key in keys]
    if not any(matches):
        raise InvalidApiKey("the API key is wrong; send the key that the server was started with")
