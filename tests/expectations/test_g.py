# SPDX-License-Identifier: Apache-2.0
"""Area G: wrong output, determinism. Real processes."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.expectations.poison import poison
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

POISON = 7
"""A token whose embedding is not a number."""


def complete(server: Serving, prompt, **fields) -> httpx.Response:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 24, "ignore_eos": True, **fields}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    said: str = answer.json()["choices"][0]["text"]
    return said


def test_t_g1(model, tmp_path):
    """Numbers that are none fail the request that meets them, are counted, and spoil no other."""
    path = poison(model.path, tmp_path / "poisoned.gguf", POISON)
    ban = {"logit_bias": {str(POISON): -100}}
    clean, bad = [20, 30, 40] * 8, [20, 30, 40] * 7 + [POISON]
    with serving(str(path), log=tmp_path / "serve.log") as server:
        alone = text(complete(server, clean, **ban))
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(complete, server, p, **ban) for p in (clean, bad) * 3]
        for number, answer in enumerate(one.result() for one in asked):
            if number % 2:
                assert (answer.status_code, answer.json()["error"]["code"]) == (
                    500,
                    "engine_error",
                )
                assert "not finite" in answer.json()["error"]["message"]
            else:
                assert text(answer) == alone
        assert text(complete(server, clean, **ban)) == alone
        failed = server.metric('vllm:request_success_total{finished_reason="error"')
        assert failed == 3


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.9, "seed": 5, "top_k": 40}])
def test_t_g2(model, tmp_path, fields):
    """Cold is warm is among others is restarted."""
    prompt = list(range(30, 130))
    said = []
    for run in range(2):
        with serving(str(model), log=tmp_path / f"serve{run}.log") as server:
            said += [text(complete(server, prompt, **fields)) for _ in range(2)]
            with ThreadPoolExecutor(8) as pool:
                others = [pool.submit(complete, server, [30 + i] * 40) for i in range(7)]
                said.append(text(complete(server, prompt, **fields)))
                assert all(other.result().status_code == 200 for other in others)
    assert len(set(said)) == 1
    assert said[0]
