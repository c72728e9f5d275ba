# SPDX-License-Identifier: Apache-2.0
"""The outermost layer of every HTTP request but the preflights that CORS answers before it.

Each answer carries an x-request-id, each error leaves in the protocol's shape and is counted, each
request is one log line without its text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenlight.base.clock import now_s
from tokenlight.base.errors import InternalError, TokenLightError
from tokenlight.base.log import event, get_log
from tokenlight.server.errors import error_response
from tokenlight.server.http.sse import FAULT, ClientGone
from tokenlight.server.messages.errors import messages_error, speaks_messages
from tokenlight.server.metrics import Metrics
from tokenlight.server.schemas.endpoint import served_path

_log = get_log("server")

# What we repeat in a header and write to a log must be harmless in both.
_SAFE_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")
_CLIENT_GONE = 499
# What is asked every few seconds by those who watch the server.
_QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})


class Trace:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        self._metrics.open_request()
        try:
            await self._answer(exchange, receive)
        finally:
            self._metrics.close_request()
            exchange.log()

    async def _answer(self, exchange: _Exchange, receive: Receive) -> None:
        try:
            await self._app(exchange.scope, receive, exchange.send)
        except (ClientGone, ClientDisconnect):
            exchange.status = _CLIENT_GONE
            self._metrics.count_disconnect()
        except TokenLightError as error:
            await self._fail(exchange, receive, error)
        except Exception:
            _log.exception(event("request_failed", id=exchange.request_id))
            await self._fail(exchange, receive, InternalError(FAULT))

    async def _fail(self, exchange: _Exchange, receive: Receive, error: TokenLightError) -> None:
        self._metrics.count_error(error.code)
        if exchange.status is not None:
            raise error  # too late for a status: the connection is closed instead
        body = None
        if speaks_messages(exchange.scope):
            body = messages_error(error, exchange.request_id)
        await error_response(error, body)(exchange.scope, receive, exchange.send)


class _Exchange:
    """One request and its answer, as the log sees them."""

    def __init__(self, scope: Scope, send: Send) -> None:
        sent = Headers(scope=scope).get("x-request-id", "")
        self.request_id = sent if _SAFE_ID.fullmatch(sent) else f"req_{secrets.token_hex(12)}"
        self.scope: MutableMapping[str, Any] = scope
        scope["tokenlight.request_id"] = self.request_id
        self.status: int | None = None
        self._send = send
        self._start_s = now_s()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            request_id = self.request_id.encode("ascii")
            # OpenAI's clients read the first, Anthropic's the second.
            headers = [(b"x-request-id", request_id), (b"request-id", request_id)]
            message["headers"] = [*message.get("headers", ()), *headers]
        await self._send(message)

    def log(self) -> None:
        line = event(
            "request",
            id=self.request_id,
            method=self.scope["method"],
            path=self.scope["path"],
            status=self.status,
            ms=round((now_s() - self._start_s) * 1000, 1),
        )
        if served_path(self.scope) in _QUIET_PATHS:
            _log.debug(line)
        else:
            _log.info(line)
