# SPDX-License-Identifier: Apache-2.0
"""Streams on the wire: keep-alives, failures midway, clients that leave."""

import asyncio
import json
import time
from itertools import pairwise

import pytest
from openai import APIError, InternalServerError

from tests.processes import wait_until
from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tokenlight.base.errors import EngineDead
from tokenlight.server.http.sse import DONE, KEEP_ALIVE_S, EventStream

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


class Client:
    """The other end of an ASGI response."""

    def __init__(self, *, leaves_after_s: float | None = None) -> None:
        self.messages: list[dict] = []
        self.times_s: list[float] = []
        self._leaves_after_s = leaves_after_s

    async def receive(self):
        await asyncio.sleep(3600 if self._leaves_after_s is None else self._leaves_after_s)
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.messages.append(message)
        self.times_s.append(time.monotonic())

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)


def stream(events, **options):
    return EventStream(events, headers={}, on_error=lambda code: None, **options)


async def test_a_silent_stream_is_kept_alive_and_starts_with_the_first_comment():
    client = Client()

    async def slow():
        while client.body.count(b": keep-alive\n\n") < 3:
            await asyncio.sleep(0.01)
        yield b"data: 1\n\n"

    await stream(slow(), keep_alive_s=0.05)({}, client.receive, client.send)
    assert client.messages[0]["type"] == "http.response.start"
    assert client.body.startswith(b": keep-alive\n\n" * 3)
    assert client.body.endswith(b"data: 1\n\n")
    assert client.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_talkative_stream_needs_no_keep_alive():
    async def steady():
        for _ in range(100):
            await asyncio.sleep(0.01)
            yield b"data: 1\n\n"

    client = Client()
    await stream(steady(), keep_alive_s=0.8)({}, client.receive, client.send)
    # Where the process itself was held up for so long, it may say so.
    longest_s = max(later - earlier for earlier, later in pairwise(client.times_s))
    assert client.body.count(b"keep-alive") == 0 or longest_s > 0.4


def test_ten_seconds_is_the_longest_silence():
    assert KEEP_ALIVE_S <= 10


async def test_a_failure_before_the_first_event_is_raised_so_that_it_gets_a_status():
    async def dead():
        raise EngineDead("gone")
        yield b""

    client = Client()
    with pytest.raises(EngineDead):
        await stream(dead())({}, client.receive, client.send)
    assert not client.messages


async def test_an_unexpected_failure_midway_ends_well_formed():
    async def broken():
        yield b"data: 1\n\n"
        raise RuntimeError("a bug")

    client, codes = Client(), []
    await EventStream(broken(), headers={}, on_error=codes.append)({}, client.receive, client.send)
    events = client.body.split(b"\n\n")
    assert json.loads(events[1].removeprefix(b"data: "))["error"]["code"] == "internal_error"
    assert client.body.endswith(DONE)
    assert b"a bug" not in client.body, "what went wrong inside is for the log"
    assert codes == ["internal_error"]


def test_the_engine_dying_before_the_first_token_is_503():
    with running(FakeEngine(fail_after=0)) as server:
        with pytest.raises(InternalServerError) as failed:
            server.client().chat.completions.create(model=MODEL, messages=HI, stream=True)
        assert (failed.value.status_code, failed.value.code) == (503, "engine_dead")


def test_the_engine_dying_midway_is_an_error_event_and_a_proper_end():
    with running(FakeEngine(fail_after=3)) as server:
        received = []

        def listen() -> None:
            ask = server.client().chat.completions.create
            for chunk in ask(model=MODEL, messages=HI, stream=True):
                received.append(chunk.choices[0].delta.content)

        with pytest.raises(APIError) as failed:
            listen()
        assert failed.value.code == "engine_dead"
        assert "".join(received) == "Hel"


def test_an_error_midway_ends_the_http_response_as_http_wants():
    with running(FakeEngine(fail_after=3)) as server:
        connection = server.post_stream(CHAT, messages=HI)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(65536)
        connection.close()
        assert b'"code":"engine_dead"' in data
        assert data.rstrip().endswith(b"data: [DONE]\n\n\r\n0")


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("when", ["before the first token", "while it speaks"])
def test_a_client_that_leaves_frees_the_engine_at_once(is_stream, when):
    engine = FakeEngine(script="x" * 150, token_s=0.2)
    if when == "before the first token":
        engine.first_token_s = 30
    with running(engine) as server:
        body = {"messages": HI, "stream": is_stream, "n": 2}
        connection = server.post_raw(CHAT, json.dumps(body).encode())
        wait_until(lambda: engine.num_unfinished == 2, 60)
        if when == "while it speaks":
            wait_until(lambda: engine.num_sampled_tokens > 3, 60)
        connection.close()
        wait_until(lambda: engine.num_unfinished == 0, 15)  # what it had to say takes 30
        assert all(seen.was_aborted for seen in engine.seen)
        assert b"tokenlight_client_disconnects_total" in server.services.metrics.text()


def test_a_client_that_leaves_while_sending_its_body_reaches_nothing():
    with running() as server:
        connection = server.connect()
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n{"
        )
        time.sleep(0.05)
        connection.close()
        assert server.client().models.list().data[0].id == MODEL
        assert not server.engine.seen


def test_a_slow_reader_gets_the_whole_text():
    text = "word " * 30
    with running(FakeEngine(script=text)) as server:
        connection = server.post_stream(CHAT, messages=HI)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            time.sleep(0.001)
            data += connection.recv(64)
        connection.close()
    spoken = [
        json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        for line in data.decode().splitlines()
        if line.startswith("data: {")
    ]
    assert "".join(spoken) == text


def test_two_hundred_random_disconnects_leave_nothing_behind():
    import random

    rng = random.Random(3)
    engine = FakeEngine(script="y" * 100, token_s=0.002)
    with running(engine) as server:
        for _ in range(200):
            connection = server.post_stream(CHAT, messages=HI, n=rng.choice([1, 2]))
            time.sleep(rng.random() * 0.01)
            if rng.random() < 0.5:
                connection.recv(64)
            connection.close()
        wait_until(lambda: engine.num_unfinished == 0, 60)
        gauge = f'tokenlight_open_http_requests{{model_name="{MODEL}"}} 0.0'.encode()
        wait_until(lambda: gauge in server.services.metrics.text(), 60)
        assert server.client().models.list().data[0].id == MODEL
