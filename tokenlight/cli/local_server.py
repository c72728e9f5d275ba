# SPDX-License-Identifier: Apache-2.0
"""A server of one's own, on a thread of this process, for as long as a command runs."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tokenlight.base.log import LogLevel
from tokenlight.cli.talk import Door
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.server.run import bind, serve, url_of


@contextmanager
def local_server(engine_config: EngineConfig, log_level: LogLevel) -> Iterator[Door]:
    """Serve on a free port of 127.0.0.1, to whoever has the key, until the block ends.

    Raises:
        ConfigError, CheckpointError, EngineError: it could not start.
    """
    # Other users of this machine can reach the port: the key keeps them out.
    config = ServerConfig(port=0, api_key=secrets.token_hex(16), drain_s=0, log_level=log_level)
    listener = bind(config.host, config.port)
    door = Door(url_of(listener, config), config.api_key)
    settled = threading.Event()
    faults: list[BaseException] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        await serve(config, engine_config, listener, stop=stop, on_ready=lambda _: settled.set())

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as fault:
            faults.append(fault)
        finally:
            settled.set()

    thread = threading.Thread(target=work, name="tokenlight-server", daemon=True)
    thread.start()
    try:
        settled.wait()
        if faults:
            raise faults[0]
        yield door
    finally:
        for loop, stop in stops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)
        thread.join()
