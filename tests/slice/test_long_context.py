# SPDX-License-Identifier: Apache-2.0
"""A 200K-token prompt through the real server, beside a stream that keeps streaming."""

import random
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from benchmarks.served import Generation, Server, serve
from tests.models.tiny import write_tiny_llama

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

CONTEXT_TOKENS = 256 * 1024
PROMPT_TOKENS = 200_000
BESIDE_TOKENS = 3_000


@pytest.fixture(scope="module")
def long_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = write_tiny_llama(
        tmp_path_factory.mktemp("long") / "long.gguf",
        seed=3,
        hidden_size=32,
        layers=2,
        heads=2,
        kv_heads=1,
        context=CONTEXT_TOKENS,
    )
    with serve(str(path), "--kv-cache-memory-bytes", str(512 << 20)) as running:
        yield running


def test_200k_prompt_beside_a_running_stream(long_server: Server) -> None:
    rng = random.Random(5)
    prompt = [rng.randrange(256) for _ in range(PROMPT_TOKENS)]
    answers: list[Generation] = []

    def read() -> None:
        answers.append(long_server.complete("Hello", BESIDE_TOKENS, ignore_eos=True))

    reader = threading.Thread(target=read)
    reader.start()
    long_answer = long_server.complete(prompt, 8, ignore_eos=True)
    assert long_answer.num_tokens == 8
    start_s, end_s = long_answer.sent_s, long_answer.token_times_s[0]
    reader.join()
    beside = [t for t in answers[0].token_times_s if start_s < t < end_s]
    assert len(beside) > 100, "the running stream stopped while the long prompt was read"
    gaps = [b - a for a, b in pairwise(beside)]
    assert max(gaps) < 5, "the running stream waited for more than a step or two"
    again = long_server.complete(prompt, 8, ignore_eos=True)
    assert again.text == long_answer.text
    assert again.time_to_first_token_s < 0.2 * (end_s - start_s), "the second time is a cache hit"
