# SPDX-License-Identifier: Apache-2.0
"""A real HTTP server on loopback, around a fake engine, on a thread of the test's process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from openai import OpenAI

from tests.server.fake_engine import ByteTokenizer, FakeEngine, PlainTemplate
from tokenlight.config import ServerConfig
from tokenlight.server.metrics import Metrics
from tokenlight.server.run import bind, make_store, serve_until, url_of
from tokenlight.server.services import Services
from tokenlight.text import Tokenizer
from tokenlight.text.conversation import Template
from tokenlight.text.dialect import Dialect

MODEL = "tiny"


@dataclass
class RunningServer:
    url: str
    engine: FakeEngine
    services: Services
    loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event
    _thread: threading.Thread
    exit_codes: list[int] = field(default_factory=list)
    clients: list[OpenAI] = field(default_factory=list)
    """To be closed: one that the collector finds may warn of its open sockets in any later test."""

    def call(self, function: Callable[[], object]) -> None:
        """Run on the server's event loop."""
        self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """What SIGTERM does."""
        self.call(self._stop.set)

    def join(self, timeout_s: float = 60) -> int:
        """Wait for the end, close the clients; the exit code."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the server did not end"
        for client in self.clients:
            client.close()
        return self.exit_codes[0]

    def client(self, **options: object) -> OpenAI:
        settings = {"api_key": "unused", "max_retries": 0, "timeout": 20, **options}
        self.clients.append(OpenAI(base_url=f"{self.url}/v1", **settings))
        return self.clients[-1]

    def connect(self) -> socket.socket:
        """A raw connection, for what no client library would send."""
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def post_raw(self, path: str, body: bytes) -> socket.socket:
        """Send a POST and leave the connection open."""
        connection = self.connect()
        connection.sendall(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
        )
        return connection

    def post_stream(self, path: str, **fields: object) -> socket.socket:
        return self.post_raw(path, json.dumps({"stream": True, **fields}).encode())


@contextmanager
def running(
    engine: FakeEngine | None = None, *, advised: dict[str, float] | None = None, **config: object
) -> Iterator[RunningServer]:
    """Serve on a free port until the block ends; `advised` is what the model's makers advise."""
    made = make_server(engine or FakeEngine(), ServerConfig(port=0, **config), advised=advised)
    try:
        yield made
    finally:
        made.stop()
        made.join()


def make_server(
    engine: FakeEngine,
    config: ServerConfig,
    template: Template | None = None,
    tokenizer: Tokenizer | ByteTokenizer | None = None,
    advised: dict[str, float] | None = None,
) -> RunningServer:
    listener = bind(config.host, config.port)
    template = template or PlainTemplate()
    tokenizer = tokenizer or ByteTokenizer()
    svc = Services(
        config=config,
        model_name=MODEL,
        checkpoint_name="tiny-checkpoint",
        engine=engine,
        tokenizer=tokenizer,
        dialect=Dialect.of(
            template,
            tokenizer,
            tool_call_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
        ),
        metrics=Metrics(MODEL),
        store=make_store(config),
        advised=advised or {},
    )
    ready = threading.Event()
    made: list[RunningServer] = []
    codes: list[int] = []

    async def main() -> int:
        stop = asyncio.Event()
        engine.start()
        made.append(
            RunningServer(
                url_of(listener, config),
                engine,
                svc,
                asyncio.get_running_loop(),
                stop,
                thread,
                codes,
            )
        )
        try:
            return await serve_until(stop, svc, listener, on_ready=lambda _: ready.set())
        finally:
            svc.store.close()

    def run() -> None:
        try:
            codes.append(asyncio.run(main()))
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    return made[0]
