# SPDX-License-Identifier: Apache-2.0
"""Area E: hangs, starvation, preemption. Real processes."""

import os
import signal
import threading
import time

import httpx
import pytest

from tests.processes import wait_until
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

COMPLETION = "/v1/completions"
NUM_TAKERS = 5
TURN_S = 0.25


def unfinished(server: Serving) -> int:
    """Requests in the engine, those included whose abort it has not yet confirmed."""
    count: int = httpx.get(f"{server.url}/ready").json()["unfinished"]
    return count


def complete(server: Serving, prompt, **fields) -> httpx.Response:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields}
    return httpx.post(server.url + COMPLETION, json=body, timeout=120)


def tokens_within(server: Serving, seconds: float) -> int:
    """How long an answer is that takes so long on this machine, as busy as it is."""
    body = {"prompt": "x", "max_tokens": 32, "ignore_eos": True}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        taken_s = [client.post(COMPLETION, json=body).elapsed.total_seconds() for _ in range(3)]
    return int(32 * seconds / min(taken_s))


def test_t_e1(model, tmp_path):
    """What the KV memory can never hold is refused with the limit, not queued for ever."""
    flags = ("--kv-cache-memory-bytes", str(800 * model.kv_bytes_per_token), "--max-num-seqs", "4")
    with serving(str(model), *flags, log=tmp_path / "serve.log") as server:
        limit = server.client().models.list().data[0].max_model_len
        assert limit < model.context_tokens
        refused = complete(server, [5] * limit)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert f"{limit} tokens" in refused.json()["error"]["message"]
        fitting = complete(server, [5] * (limit - 1)).json()
        assert fitting["choices"][0]["finish_reason"] == "length"
        assert fitting["usage"]["completion_tokens"] == 1
        assert complete(server, "and on").status_code == 200


def test_t_e2_and_e4(model, tmp_path):
    """A request that gets no token fails alone; those that run go on, the process lives."""
    flags = ("--max-num-seqs", "1", "--stall-timeout", "6")
    with serving(str(model), *flags, log=tmp_path / "serve.log") as server:
        is_over = threading.Event()
        statuses: list[int] = []
        turn_tokens = tokens_within(server, TURN_S)

        def take_turns() -> None:
            body = {"prompt": "x", "max_tokens": turn_tokens, "ignore_eos": True}
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while not is_over.is_set():
                    statuses.append(client.post(COMPLETION, json=body).status_code)

        # They take turns, ahead of the one that waits: it never gets the only slot, unless all of
        # them are late with their next turn. None of them waits for as long as the limit.
        others = [threading.Thread(target=take_turns) for _ in range(NUM_TAKERS)]
        for other in others:
            other.start()
        wait_until(lambda: len(statuses) > 2, 60)
        start_s = time.monotonic()
        starved = complete(server, "never mine", priority=1)
        took_s = time.monotonic() - start_s
        assert httpx.get(f"{server.url}/health").status_code == 200
        is_over.set()
        for other in others:
            other.join()
        assert (starved.status_code, starved.json()["error"]["code"]) == (503, "engine_stalled")
        assert 6 <= took_s < 12
        assert set(statuses) == {200}
        wait_until(lambda: unfinished(server) == 0, 60)
        assert complete(server, "mine now", priority=1).status_code == 200


def test_t_e7(model, tmp_path):
    """/health tells of a stopped engine within 10 seconds, and of its coming back."""
    with serving(str(model), log=tmp_path / "serve.log") as server:
        health = f"{server.url}/health"
        engine_pid = server.engine_pid()
        os.kill(engine_pid, signal.SIGSTOP)
        try:
            took_s = wait_until(lambda: httpx.get(health).status_code == 503, 15)
            assert took_s < 10
            assert httpx.get(health).json()["error"]["code"] == "engine_stalled"
            refused = complete(server, "hi")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stalled")
        finally:
            os.kill(engine_pid, signal.SIGCONT)
        wait_until(lambda: httpx.get(health).status_code == 200, 60)
        assert complete(server, "hi").status_code == 200
