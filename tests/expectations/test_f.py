# SPDX-License-Identifier: Apache-2.0
"""Area F: disconnect, abort, leaks. Real processes."""

import json
import random
import socket
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.processes import wait_until
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

COMPLETION = "/v1/completions"
PROMPTS = 8


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """At most two requests run, so that a third waits."""
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with serving(str(model), "--max-num-seqs", "2", log=log) as made:
        yield made


def unfinished(server: Serving) -> int:
    count: int = httpx.get(f"{server.url}/ready").json()["unfinished"]
    return count


def send(server: Serving, **fields) -> socket.socket:
    """A request whose connection stays open."""
    body = json.dumps({"prompt": "x", "max_tokens": 1900, "ignore_eos": True, **fields}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    head = f"POST {COMPLETION} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def all_blocks_are_free(server: Serving) -> bool:
    return server.metric("tokenlight_kv_blocks_free") == server.metric("tokenlight_kv_blocks")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["decode", "prefill", "queue"])
def test_t_f1(server, model, when, stream):
    """The engine has let go of a request a step after its client has left."""
    # Longer than anybody here looks: 28 s on a fast machine, of a tiny model.
    endless = model.context_tokens - 2000
    others = [send(server, max_tokens=endless) for _ in range(2)] if when == "queue" else []
    if others:
        wait_until(lambda: unfinished(server) == 2, 60)
    # Prompts that nobody sent before, and enough that a small model is at it when looked at.
    shape = (PROMPTS, min(16_000, model.context_tokens - 100))
    ids = np.random.default_rng(stream).integers(3, 500, shape).tolist()
    prompt = ids if when == "prefill" else "x"
    max_tokens = 40 if when == "prefill" else endless
    leaver = send(server, prompt=prompt, max_tokens=max_tokens, stream=stream)
    wait_until(lambda: unfinished(server) > len(others), 60)
    if when == "decode":
        time.sleep(0.1)
    leaver.close()
    wait_until(lambda: unfinished(server) <= len(others), model.step_s)
    for other in others:
        other.close()
    wait_until(lambda: unfinished(server) == 0, 60)
    wait_until(lambda: all_blocks_are_free(server), 60)


def test_t_f2(server):
    """Leaving at any byte of a stream costs the next turn nothing but what was cut."""
    asked = {"prompt": list(range(40, 140)), "temperature": 0, "max_tokens": 60}
    whole = httpx.post(server.url + COMPLETION, json=asked, timeout=60).json()
    for num_bytes in (1, 20, 150, 400, 1500, 4000):
        with send(server, **asked, stream=True) as leaver:
            received = b""
            # Where events were put together, the whole stream may be shorter than that.
            while len(received) < num_bytes and b"[DONE]" not in received:
                received += leaver.recv(min(64, num_bytes - len(received)))
        again = httpx.post(server.url + COMPLETION, json=asked, timeout=60).json()
        assert again["choices"] == whole["choices"]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 96 - 16


def leave_at_random(server: Serving, num_requests: int, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(num_requests):
        connection = send(
            server,
            prompt=[rng.randrange(3, 500) for _ in range(rng.choice([1, 20, 300]))],
            stream=rng.random() < 0.7,
            max_tokens=rng.choice([1, 5, 200]),
        )
        match number % 3:
            case 0:
                pass  # gone at once
            case 1:
                time.sleep(rng.random() * 0.01)
            case 2 if rng.random() < 0.5:
                connection.recv(1)
        connection.close()
    wait_until(lambda: unfinished(server) == 0, 60)


def test_t_f3(server):
    """After any aborts, as many blocks are free as at the start."""
    leave_at_random(server, 300, seed=1)
    wait_until(lambda: all_blocks_are_free(server), 60)
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_t_f4(server):
    """Ten thousand random disconnects."""
    engine_pid = server.engine_pid()
    leave_at_random(server, 10_000, seed=2)
    wait_until(lambda: all_blocks_are_free(server), 60)
    assert server.engine_pid() == engine_pid
    assert "Traceback" not in server.said


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_t_f6(server):
    """No process grows with the number of requests that it has served."""
    pids = (server.process.pid, server.engine_pid())
    counts, sizes = [], []
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for number in range(100_000):
            body = {"prompt": [number % 500], "max_tokens": 1}
            assert client.post(COMPLETION, json=body).status_code == 200
            # The first tenth fills what is filled once: caches, arenas, the KV pool's pages.
            if number >= 10_000 and number % 1000 == 0:
                counts.append(number)
                sizes.append([rss_bytes(pid) for pid in pids])
    for process, slope in zip(("server", "engine"), np.polyfit(counts, sizes, 1)[0], strict=True):
        assert slope <= 16, f"the {process} grows by {slope:.1f} bytes per request"
