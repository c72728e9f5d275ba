# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: encoded, kept alive, stopped with the client, ended well on a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from tokenlight.base.clock import now_s
from tokenlight.base.errors import InternalError, TokenLightError
from tokenlight.base.log import event, get_log
from tokenlight.server.errors import error_body

_Result = TypeVar("_Result")

_log = get_log("server")
_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_S = 5.0
"""Clients are promised a byte each 10 s; a busy event loop may be late."""


class Voice(Protocol):
    """What a protocol says when it has no answer to give."""

    def keep_alive(self) -> bytes:
        """Something that changes nothing: it is still there."""
        ...

    def failure(self, error: TokenLightError) -> bytes:
        """The answer ends here, and why."""
        ...


class OpenAiVoice:
    """Of chat completions and completions."""

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def failure(self, error: TokenLightError) -> bytes:
        return sse_event(error_body(error)) + DONE


class ClientGone(Exception):
    """The client closed its connection; nobody is left to answer."""


def sse_event(message: msgspec.Struct) -> bytes:
    """One `data:` event."""
    return b"data: %b\n\n" % _encode(message)


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work`, and cancel it as soon as the client goes away.

    Args:
        receive: the request's channel, its body already read.
        work: what to do for the client.

    Raises:
        ClientGone: the client went away first; `work` has been cancelled and has ended.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """An ASGI response that streams events.

    The status line waits for the first event (or the first keep-alive), so that a request which
    fails before its first token still gets a proper HTTP status.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        on_error: Callable[[str], None],
        voice: Voice | None = None,
        keep_alive_s: float | None = None,
    ) -> None:
        """Stream `events`; `on_error` gets the code of an error too late for a status."""
        self._voice = voice or OpenAiVoice()
        self._events = events
        self._headers = headers
        self._on_error = on_error
        self._keep_alive_s = KEEP_ALIVE_S if keep_alive_s is None else keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        channel = _Channel(send, self._headers)
        await until_disconnect(receive, self._run(channel))

    async def _run(self, channel: _Channel) -> None:
        beat = asyncio.create_task(channel.beat(self._keep_alive_s, self._voice))
        try:
            async with aclosing(self._events):
                async for chunk in self._events:
                    await channel.write(chunk)
        except TokenLightError as error:
            if not channel.is_started:
                raise
            await self._fail(channel, error)
        except Exception:
            if not channel.is_started:
                raise
            _log.exception(event("stream_failed"))
            await self._fail(channel, InternalError(FAULT))
        finally:
            beat.cancel()
        await channel.end()

    async def _fail(self, channel: _Channel, error: TokenLightError) -> None:
        self._on_error(error.code)
        await channel.write(self._voice.failure(error))


FAULT = "the server failed while answering; see its log, the request may be sent again"


class _Channel:
    """The open end of a response, with two writers: the events and the keep-alive."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send = send
        self._headers = headers
        self._written_s = now_s()
        self._turn = asyncio.Lock()
        self.is_started = False

    async def write(self, chunk: bytes) -> None:
        self._written_s = now_s()
        async with self._turn:
            if not self.is_started:
                await self._start()
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def beat(self, period_s: float, voice: Voice) -> None:
        """Say that we are there whenever nothing has been written for `period_s`."""
        while True:
            idle_s = now_s() - self._written_s
            if idle_s < period_s:
                await asyncio.sleep(period_s - idle_s)
            else:
                await self.write(voice.keep_alive())

    async def end(self) -> None:
        async with self._turn:
            if not self.is_started:
                await self._start()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self) -> None:
        self.is_started = True
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            # nginx would hold events back.
            "x-accel-buffering": "no",
            **self._headers,
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
