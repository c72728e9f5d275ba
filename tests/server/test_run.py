# SPDX-License-Identifier: Apache-2.0
"""The life of a server: starting, binding, draining, ending with its engine."""

import asyncio
import json
import logging
import socket
import threading
import time

import httpx
import pytest

from tests.processes import wait_until
from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, make_server, running
from tokenlight.base.errors import ConfigError, EngineStalled, UnsupportedCheckpoint
from tokenlight.config import EngineConfig, ModelConfig, ServerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.server import run
from tokenlight.server.run import EXIT_ENGINE_DEAD, bind, start_services, url_of
from tokenlight.server.store import ResponseStore

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        if not part:
            break
        data += part
    connection.close()
    return data


@pytest.fixture
def no_tokenizer(tmp_path, monkeypatch):
    """The config of a folder that cannot be served, and what is given back of its start."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    ends: list[str] = []
    close = ResponseStore.close

    def close_store(store: ResponseStore) -> None:
        ends.append("store")
        close(store)

    monkeypatch.setattr(ResponseStore, "close", close_store)
    return EngineConfig(model=ModelConfig(model=str(tmp_path), load_format="dummy")), ends


async def test_a_folder_without_a_tokenizer_is_told_of_while_its_weights_are_read(
    no_tokenizer, monkeypatch
):
    engine_config, ends = no_tokenizer

    async def start(*_: object, **__: object) -> None:
        try:
            await asyncio.Event().wait()  # a model of many gigabytes
        finally:
            ends.append("engine")

    monkeypatch.setattr(AsyncLLM, "start", start)
    async with asyncio.timeout(60):
        with pytest.raises(UnsupportedCheckpoint, match="--tokenizer"):
            await start_services(ServerConfig(), engine_config)
    assert sorted(ends) == ["engine", "store"]


async def test_an_engine_that_runs_before_its_tokenizer_is_read_is_given_back(
    no_tokenizer, monkeypatch
):
    engine_config, ends = no_tokenizer
    is_running = threading.Event()
    read_text = run._read_text

    class Started(AsyncLLM):
        def __init__(self) -> None:
            is_running.set()

        async def close(self, drain_s: float = 0.0) -> None:
            ends.append("engine")

    async def start(*_: object, **__: object) -> AsyncLLM:
        return Started()

    def read_late(*sent: object) -> object:
        assert is_running.wait(60)
        return read_text(*sent)

    monkeypatch.setattr(AsyncLLM, "start", start)
    monkeypatch.setattr(run, "_read_text", read_late)
    with pytest.raises(UnsupportedCheckpoint, match="--tokenizer"):
        await start_services(ServerConfig(), engine_config)
    assert sorted(ends) == ["engine", "store"]


@pytest.mark.parametrize(
    ("whose", "advised"), [("model", {"temperature": 0.6, "top_k": 20}), ("openai", {})]
)
async def test_sampling_defaults_are_the_models_or_nobodys(tmp_path, monkeypatch, whose, advised):
    async def start(*_: object, **__: object) -> FakeEngine:
        return FakeEngine()

    monkeypatch.setattr(AsyncLLM, "start", start)
    monkeypatch.setattr(run, "_read_text", lambda *_: (None, None))
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    kept = {"eos_token_id": 2, "temperature": 0.6, "top_k": 20}
    (tmp_path / "generation_config.json").write_text(json.dumps(kept))
    svc = await start_services(
        ServerConfig(sampling_defaults=whose),
        EngineConfig(model=ModelConfig(model=str(tmp_path), load_format="dummy")),
    )
    svc.store.close()
    assert svc.advised == advised


def test_a_running_request_is_finished_and_new_ones_are_refused_while_draining():
    engine = FakeEngine(script="x" * 20, token_s=1.0)
    server = make_server(engine, ServerConfig(port=0, drain_s=60))
    speaking = server.post_stream(CHAT, messages=HI)
    speaking.recv(1)
    server.stop()
    wait_until(lambda: server.services.lifecycle.is_stopping, 60)
    for path, method in ((CHAT, "POST"), ("/health", "GET"), ("/v1/completions", "POST")):
        answer = httpx.request(method, server.url + path, content=b'{"messages": [], "prompt": ""}')
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")
    engine.token_s = 0.0  # what must be heard meanwhile has been
    data = read_all(speaking)
    assert data.count(b'"content":"x"') == 20
    assert b'"finish_reason":"stop"' in data
    assert server.join() == 0


def test_the_drain_is_bounded_and_what_it_cuts_ends_with_an_error():
    engine = FakeEngine(script="x" * 100, token_s=0.5)
    server = make_server(engine, ServerConfig(port=0, drain_s=0.3))
    speaking = server.post_stream(CHAT, messages=HI)
    speaking.recv(1)
    start_s = time.monotonic()
    server.stop()
    data = read_all(speaking)
    assert b'"code":"server_stopping"' in data
    assert data.rstrip().endswith(b"data: [DONE]\n\n\r\n0")
    assert server.join() == 0
    assert time.monotonic() - start_s < 25  # the answer would have taken 50


def test_an_idle_server_stops_at_once_though_clients_keep_connections_open(monkeypatch):
    monkeypatch.setattr(run, "_CLOSE_GRACE_S", 100)
    server = make_server(FakeEngine(), ServerConfig(port=0))
    with httpx.Client() as client:
        assert client.get(f"{server.url}/health").status_code == 200
        start_s = time.monotonic()
        server.stop()
        assert server.join() == 0
        assert time.monotonic() - start_s < 50


def test_when_the_engine_dies_everyone_hears_503_and_the_server_ends_non_zero(monkeypatch):
    monkeypatch.setattr(run, "_DEAD_GRACE_S", 20.0)
    engine = FakeEngine(script="x" * 100, token_s=0.2)
    server = make_server(engine, ServerConfig(port=0))
    speaking = server.post_stream(CHAT, messages=HI)
    speaking.recv(1)
    waiting: list[httpx.Response] = []
    asker = threading.Thread(
        target=lambda: waiting.append(httpx.post(server.url + CHAT, json={"messages": HI}))
    )
    asker.start()
    wait_until(lambda: engine.num_unfinished == 2, 60)
    with httpx.Client(base_url=server.url) as late:
        assert late.get("/health").status_code == 200  # connected: what follows takes no time
        server.call(engine.die)
        assert b'"code":"engine_dead"' in read_all(speaking)
        for path, body in (("/health", None), (CHAT, {"messages": HI})):
            answer = late.request("POST" if body else "GET", path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_dead")
    server.stop()  # instead of waiting for the end of its grace
    asker.join()
    assert (waiting[0].status_code, waiting[0].json()["error"]["code"]) == (503, "engine_dead")
    assert server.join() == EXIT_ENGINE_DEAD != 0


def test_health_is_what_the_engine_says_now():
    engine = FakeEngine()
    with running(engine) as server:
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
        engine.fault = EngineStalled("no step for 12 s")
        answer = httpx.get(f"{server.url}/health")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_stalled")
        assert answer.json()["error"]["message"] == "no step for 12 s"
        engine.fault = None
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_port_in_use_is_a_clear_error():
    with running() as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(ConfigError, match=rf"port {port} on 127.0.0.1 is in use; .*--port"):
            bind("127.0.0.1", port)


def test_a_host_that_is_no_address_is_a_clear_error():
    with pytest.raises(ConfigError, match=r"--host 256\.0\.0\.1 is no address"):
        bind("256.0.0.1", 0)
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1 port 0"):
        bind("192.0.2.1", 0)


def test_a_bound_port_refuses_connections_until_the_server_listens():
    with bind("127.0.0.1", 0) as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(listener.getsockname(), timeout=1)


def test_urls_are_ones_that_a_client_can_open():
    with bind("0.0.0.0", 0) as listener:
        assert url_of(listener, ServerConfig()) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    if socket.has_ipv6:
        try:
            listener = bind("::1", 0)
        except ConfigError:
            return
        with listener:
            assert url_of(listener, ServerConfig()).startswith("http://[::1]:")


def test_each_request_is_one_log_line_without_its_text(caplog):
    with caplog.at_level(logging.DEBUG, "tokenlight.server"), running() as server:
        secret = "a very private text"
        body = {"messages": [{"role": "user", "content": secret}], "no_such_field": 1}
        sent = httpx.post(server.url + CHAT, json=body, headers={"x-request-id": "mine-1"})
        assert sent.headers["x-request-id"] == "mine-1"
    lines = [r.getMessage() for r in caplog.records]
    assert [x for x in lines if x.startswith("request ")] == [
        next(x for x in lines if "id=mine-1" in x and f"path={CHAT}" in x and "status=200" in x)
    ]
    assert "unknown_fields_ignored fields=no_such_field" in lines
    assert secret not in " ".join(lines)


@pytest.mark.parametrize("sent", ["", "a b", "x" * 200, 'quote"', "ünï"])
def test_a_request_id_that_a_log_cannot_bear_is_replaced(sent):
    with running() as server:
        headers = {"x-request-id": sent.encode()}
        got = httpx.get(f"{server.url}/health", headers=headers).headers["x-request-id"]
    assert got != sent
    assert got.startswith("req_")


def test_a_bug_in_a_route_is_500_in_the_protocols_shape_and_logged(caplog):
    def broken(seen):
        raise ZeroDivisionError("inside")

    with running(FakeEngine(script=broken)) as server:
        answer = httpx.post(server.url + CHAT, json={"messages": HI})
        counted = server.services.metrics.text().decode()
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "inside" not in answer.text
    assert "ZeroDivisionError" in caplog.text
    assert f'tokenlight_errors_total{{code="internal_error",model_name="{MODEL}"}} 1.0' in counted


def test_a_body_larger_than_the_socket_buffers_still_gets_its_413():
    with running(max_body_bytes=2048) as server:
        for declared in (True, False):
            content = b"x" * (8 << 20) if declared else (b"x" * 65536 for _ in range(128))
            answer = httpx.post(server.url + CHAT, content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_a_request_line_that_is_no_http_is_refused():
    with running() as server:
        connection = server.connect()
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in connection.recv(65536)
        connection.close()
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_headers_beyond_a_limit_are_refused():
    with running() as server:
        connection = server.connect()
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * (1 << 20))
            assert b"400" in connection.recv(65536)
        except ConnectionError:
            pass  # refused while we were still sending
        connection.close()
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_requests_on_one_connection_are_answered_in_order():
    with running() as server:
        body = json.dumps({"prompt": "hi"}).encode()
        one = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
        connection = server.connect()
        connection.sendall(one % (len(body), body) + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        data = b""
        while b'{"status":"ok"}' not in data:
            data += connection.recv(65536)
        connection.close()
        assert data.index(b"text_completion") < data.index(b'{"status":"ok"}')
