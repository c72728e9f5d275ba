# SPDX-License-Identifier: Apache-2.0
"""The client's end of the wire: what an engine said before its end is heard, however late."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
import zmq

from tokenlight import wire
from tokenlight.base.errors import ConfigError, EngineDead
from tokenlight.config import EngineConfig
from tokenlight.engine import link as engine_link
from tokenlight.engine.link import Link


class Ended:
    """In place of a process that has ended before anyone looks."""

    pid = 1

    def __init__(self, orders: object) -> None:
        self.exited = asyncio.get_running_loop().create_future()
        self.exited.set_result(1)

    async def stop(self, *, grace_s: float) -> None:
        pass

    def kill(self) -> None:
        self.killed_s = time.monotonic()


@pytest.fixture
async def link(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_link, "EngineProcess", Ended)
    heard = SimpleNamespace(deltas=[], deaths=[])
    made = Link(heard.deltas.extend, heard.deaths.append)
    yield made, heard
    await made.close()


async def test_last_words_count_though_the_end_is_heard_of_first(link, monkeypatch):
    """The kernel tells of the end at once; a connection's last bytes take a thread to read."""
    monkeypatch.setattr(engine_link, "_LAST_WORDS_MS", 30_000)
    made, heard = link
    context = zmq.Context()
    outbox = context.socket(zmq.PUSH)
    outbox.connect(made._address("from-engine"))
    outbox.send(wire.encode(wire.Deltas(deltas=[])))
    while not made._connections.poll(20):
        await asyncio.sleep(0)

    def say_and_end() -> None:
        time.sleep(0.1)
        outbox.send(wire.encode(wire.Failed(code=ConfigError.code, message="no such flag")))
        context.destroy(linger=1000)

    ending = threading.Thread(target=say_and_end)
    ending.start()
    with pytest.raises(ConfigError, match="no such flag"):
        await made.start(EngineConfig(), log_level="warning")
    ending.join()
    assert len(heard.deaths) == 1


async def test_who_never_connected_is_dead_at_once(link):
    made, heard = link
    with pytest.raises(EngineDead, match="ended with exit code 1"):
        await made.start(EngineConfig(), log_level="warning")
    assert len(heard.deaths) == 1


async def test_an_engine_is_not_silent_while_the_machine_was_stopped(
    link, monkeypatch: pytest.MonkeyPatch
):
    """A minute passes within one sleep: what counts is the silence after it."""
    made, _ = link
    made._process = Ended(None)
    stopped_s = 0.0
    monkeypatch.setattr(engine_link, "now_s", lambda: time.monotonic() + stopped_s)
    monkeypatch.setattr(engine_link, "_LOST_AFTER_S", 0.4)
    made._last_heard_s = time.monotonic()
    ending = asyncio.create_task(made.end_if_silent())
    await asyncio.sleep(0)
    started_s, stopped_s = time.monotonic(), 60.0
    async with asyncio.timeout(60):
        await ending
    assert made._process.killed_s - started_s > 0.1


@pytest.mark.timeout(60)
async def test_a_message_to_an_engine_that_just_left_goes_nowhere(link):
    """Its sockets have closed and its end is not known yet: ZeroMQ would wait for another."""
    made, _ = link
    with zmq.Context() as context, context.socket(zmq.PULL) as inbox:
        inbox.connect(made._address("to-engine"))
        made.send(wire.Abort(request_id="a"))
        while not await asyncio.to_thread(inbox.poll, 1000):
            made.send(wire.Abort(request_id="a"))
    await asyncio.sleep(0.5)
    for _ in range(100):
        made.send(wire.Abort(request_id="b"))


async def test_a_message_that_cannot_be_read_does_not_hide_the_next(link):
    made, heard = link
    delta = wire.Delta(request_id="a", token_ids=[1], num_cached_tokens=0)
    made._last_heard_s = 0.0
    with zmq.Context() as context, context.socket(zmq.PUSH) as outbox:
        outbox.connect(made._address("from-engine"))
        for data in (b"?", wire.encode(wire.Deltas(deltas=[delta]))):
            outbox.send(data)
        async with asyncio.timeout(30):
            while not heard.deltas:
                await asyncio.sleep(0.01)
    assert heard.deltas == [delta]
    assert made._last_heard_s > 0, "who says something is there"
