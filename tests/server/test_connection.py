# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, silent, too many or no HTTP clients: each is ended, and no other waits."""

import contextlib
import json
import resource
import socket
import time

import httpx
import pytest

from tests.processes import wait_until
from tests.server.fake_engine import FakeEngine
from tests.server.running import running
from tokenlight.server.run import allow_open_files

TIMEOUT_S = 0.5
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(), client_timeout_s=TIMEOUT_S) as made:
        yield made


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    data = b""
    with connection:
        while part := connection.recv(1 << 16):
            data += part
    return data


def error_of(answer: bytes) -> tuple[int, dict]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"x-request-id: req_" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


def drip(connection: socket.socket, data: bytes, pause_s: float) -> None:
    """Send a byte at a time until the server closes or all is sent."""
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(pause_s)


def is_alive(server) -> bool:
    """Asked again where this process itself was too slow for its own server."""
    with contextlib.suppress(httpx.TimeoutException):
        return httpx.get(f"{server.url}/health").status_code == 200
    return httpx.get(f"{server.url}/health").status_code == 200


def test_one_that_says_nothing_is_closed(server):
    connection = server.connect()
    start_s = time.monotonic()
    assert received(connection) == b""
    assert time.monotonic() - start_s >= TIMEOUT_S * 0.9


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nhost: x\r\n",
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{" % CHAT.encode(),
        b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
        % CHAT.encode(),
    ],
    ids=["head", "body", "chunked body"],
)
def test_one_that_stops_in_a_request_is_told_so(server, sent):
    connection = server.connect()
    connection.sendall(sent)
    status, error = error_of(received(connection))
    assert (status, error["code"], error["param"]) == (408, "request_timeout", None)
    assert "--client-timeout" in error["message"]
    assert is_alive(server)
    assert not server.engine.seen


@pytest.mark.parametrize("start", [b"GET /health HTTP/1.1\r\nx: ", b"POST /v1/chat/completions "])
def test_one_that_drips_is_ended_all_the_same(server, start):
    """What counts is the whole request: bytes now and then win no time."""
    if start.startswith(b"POST"):
        start += b"HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
    connection = server.connect()
    start_s = time.monotonic()
    connection.sendall(start)
    drip(connection, b" " * 200, TIMEOUT_S / 10)
    assert time.monotonic() - start_s < 200 * TIMEOUT_S / 10
    status, error = error_of(received(connection))
    assert (status, error["code"]) == (408, "request_timeout")


def test_the_messages_protocol_is_told_in_its_own_words(server):
    connection = server.connect()
    connection.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
    body = json.loads(received(connection).partition(b"\r\n\r\n")[2])
    assert body["type"] == "error"
    assert "--client-timeout" in body["error"]["message"]


def test_a_refused_request_whose_body_never_ends_does_not_hold_its_connection(server):
    connection = server.connect()
    connection.sendall(b"POST /v1/nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
    drip(connection, b" " * 200, TIMEOUT_S / 10)
    assert b"route_not_found" in received(connection)


def test_a_slow_answer_is_not_the_clients_fault():
    with running(FakeEngine(first_token_s=3 * TIMEOUT_S), client_timeout_s=TIMEOUT_S) as server:
        answer = httpx.post(
            server.url + CHAT, json={"messages": [{"role": "user", "content": "x"}]}
        )
        assert answer.status_code == 200


def test_a_connection_may_rest_between_requests(server):
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
        (connection,) = client._transport._pool.connections
        time.sleep(1.5 * TIMEOUT_S)
        assert client.get("/health").status_code == 200
        assert client._transport._pool.connections == [connection]


def test_one_that_takes_no_more_of_its_answers_is_ended(server, caplog):
    """A stack of requests whose answers fill every buffer on the way, of which it reads none."""
    num_requests = (16 << 20) // len(httpx.get(f"{server.url}/openapi.json").content)
    answers = b""
    with server.connect() as connection, caplog.at_level("INFO", "tokenlight"):
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * num_requests)
        wait_until(lambda: "slow_reader" in caplog.text, 30)
        with contextlib.suppress(ConnectionError):
            answers = received(connection)
    assert answers.count(b"HTTP/1.1 200") < num_requests
    assert is_alive(server)


@pytest.mark.parametrize(
    "sent", [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / \r\n\r\n"]
)
def test_what_is_no_http_is_refused_as_any_other_error(server, sent):
    connection = server.connect()
    connection.sendall(sent)
    status, error = error_of(received(connection))
    assert (status, error["code"]) == (400, "invalid_request")


def test_headers_without_end_are_refused(server):
    connection = server.connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nx: " + b"y" * (1 << 17))
    status, error = error_of(received(connection))
    assert (status, error["code"]) == (400, "invalid_request")
    assert "64 KB" in error["message"]


def test_one_connection_too_many_is_told_to_come_back():
    with running(FakeEngine(), max_connections=3, client_timeout_s=5.0) as server:
        with contextlib.ExitStack() as held:
            for _ in range(3):
                connection = held.enter_context(server.connect())
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
            late = server.connect()
            late.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            status, error = error_of(received(late))
            assert (status, error["code"]) == (429, "overloaded")
            late = server.post_raw("/v1/messages", b"{}")
            status, error = error_of(received(late))
            assert (status, error["type"]) == (429, "rate_limit_error")
        wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 200, 60)


def test_the_limit_of_open_files_is_raised_as_far_as_it_may():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        allow_open_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(428, hard), hard)
        allow_open_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(428, hard), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
