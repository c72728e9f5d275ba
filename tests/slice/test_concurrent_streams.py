# SPDX-License-Identifier: Apache-2.0
"""What shares a step never changes an answer: the default model, crowded, with joins and leaves."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise

import httpx
import pytest

from benchmarks.served import Server

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

NUM_STREAMS = 32
STARTS = ["Once upon a time", "The recipe needs", "def fibonacci(n):", "Dear Sir,", "In 1969"]


def metric(server: Server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    found = re.search(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+]+)$", text, re.MULTILINE)
    assert found, f"{name} is not in /metrics"
    return float(found.group(1))


def prompts(rng: random.Random) -> list[tuple[str, int]]:
    """Prompts of 5 to 60 words, some sharing their beginnings, and long answers.

    Longer than the margin that admission reserves, so that the pool runs out.
    """
    words = ["sea", "calm", "old", "men", "sat", "boats", "telling", "long", "stories"]
    made = []
    for _ in range(NUM_STREAMS):
        tail = " ".join(rng.choice(words) for _ in range(rng.randrange(5, 60)))
        made.append((f"{rng.choice(STARTS)} {tail}", rng.randrange(40, 240)))
    return made


def disconnect_early(server: Server, prompt: str) -> None:
    body = {"prompt": prompt, "max_tokens": 64, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                return


def test_each_of_32_streams_gets_the_text_it_gets_alone(crowded_server: Server) -> None:
    server, rng = crowded_server, random.Random(7)
    asked = prompts(rng)
    free_before = metric(server, "tokenlight_kv_blocks_free")
    cold = [server.complete(prompt, limit).text for prompt, limit in asked]
    with ThreadPoolExecutor(NUM_STREAMS + 8) as pool:
        streams = {pool.submit(server.complete, *ask): i for i, ask in enumerate(asked)}
        leavers = [pool.submit(disconnect_early, server, f"Leaver {i}: go") for i in range(8)]
        for stream in as_completed(streams):
            assert stream.result().text == cold[streams[stream]]
        for leaver in leavers:
            leaver.result()
    assert metric(server, "vllm:num_preemptions_total") > 0, "the pool must be too small for all"
    warm = [server.complete(prompt, limit).text for prompt, limit in asked]
    assert warm == cold
    deadline_s = time.monotonic() + 60  # the engine tells its counts once a second
    while metric(server, "tokenlight_kv_blocks_free") != free_before:
        assert time.monotonic() < deadline_s, "blocks are missing at the end"
        time.sleep(0.1)


def test_a_newcomer_is_served_while_31_others_run(server: Server) -> None:
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        others = [
            pool.submit(server.complete, f"Story {i}: once upon a time there was", 160)
            for i in range(NUM_STREAMS - 1)
        ]
        while metric(server, "vllm:num_requests_running") < NUM_STREAMS - 1:
            assert not all(other.done() for other in others)
        newcomer = server.complete("A newcomer asks: what is the capital of France?", 4)
        assert not any(other.done() for other in others), "the others must still be running"
        for other in others:
            assert other.result().num_tokens > 0
    gaps_s = [b - a for other in others for a, b in pairwise(other.result().token_times_s)]
    limit_s = 5 * max(gaps_s) + 1
    assert newcomer.time_to_first_token_s < limit_s, "a newcomer waits a few steps, no more"
