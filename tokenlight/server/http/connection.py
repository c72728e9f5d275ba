# SPDX-License-Identifier: Apache-2.0
"""A client's connection, which a slow or silent client cannot hold for ever.

The client has a time to send a request, from its first byte to its last, and a time to take a piece
of an answer. What is refused before the application sees it is told as any other error.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenlight.base.errors import (
    InvalidRequest,
    Overloaded,
    RequestTooSlow,
    TokenLightError,
)
from tokenlight.base.log import event, get_log
from tokenlight.server.errors import error_response
from tokenlight.server.messages.errors import messages_error, speaks_messages

_log = get_log("server")

_LINGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What clients may take of the server before a request of theirs is whole."""

    max_connections: int
    client_timeout_s: float


class _Timer:
    """Calls `act` when it has run for `timeout_s`. Starting it again changes nothing."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout_s: float, act: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._act = act
        self._running: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._running is None:
            self._running = self._loop.call_later(self._timeout_s, self._end)

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def _end(self) -> None:
        self._running = None
        self._act()


class Connection(H11Protocol):
    """uvicorn's connection with limits. Timers run only while the client owes us something."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._is_refused = False
        self._sends = _Timer(self.loop, limits.client_timeout_s, self._on_slow_request)
        self._takes = _Timer(self.loop, limits.client_timeout_s, self._on_slow_reader)

    # uvicorn's own signature
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sends.start()
        if len(self.connections) > self._limits.max_connections:
            self.app = self._refuse_one_too_many

    def connection_lost(self, exc: Exception | None) -> None:
        self._sends.stop()
        self._takes.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_within_request():
            self._sends.start()
        else:
            self._sends.stop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._takes.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._takes.stop()

    def _is_within_request(self) -> bool:
        if self.conn.their_state is h11.IDLE:
            return bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            InvalidRequest(
                "what came is not an HTTP/1.1 request, or its headers are longer than this server "
                "reads (64 KB); https wants --ssl-certfile"
            )
        )

    def _on_slow_request(self) -> None:
        if self._is_within_request():
            self._refuse(RequestTooSlow(limit_s=self._limits.client_timeout_s))
        else:
            self.transport.close()  # it has never said anything

    def _on_slow_reader(self) -> None:
        _log.info(event("slow_reader", client=self.client, limit_s=self._limits.client_timeout_s))
        self.transport.abort()

    def _refuse(self, error: TokenLightError) -> None:
        """Answer outside the application, if nothing has been answered yet, and close."""
        _log.info(event("connection_refused", client=self.client, code=error.code))
        is_asked = self.conn.their_state is not h11.IDLE and self.cycle is not None
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = messages_error(error) if is_asked and speaks_messages(dict(self.scope)) else None
            answer = error_response(error, body)
            headers = [*answer.raw_headers, *_closing_headers()]
            for part in (
                h11.Response(status_code=answer.status_code, headers=headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(part) or b"")
        if is_asked:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._linger()

    def _linger(self) -> None:
        """Close, but read on for a moment: a reset would overtake the answer."""
        self._is_refused = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()

    async def _refuse_one_too_many(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = Overloaded(
            f"this server has {self._limits.max_connections} connections already; use those "
            f"that are open again, or come back later"
        )
        answer = error_response(error, messages_error(error) if speaks_messages(scope) else None)
        answer.raw_headers.extend(_closing_headers())
        await answer(scope, receive, send)


def _closing_headers() -> list[tuple[bytes, bytes]]:
    request_id = f"req_{secrets.token_hex(12)}".encode()
    return [(b"connection", b"close"), (b"x-request-id", request_id), (b"request-id", request_id)]
