# SPDX-License-Identifier: Apache-2.0
"""What one request may ask of a server that holds few."""

import httpx
import pytest

from tests.server.fake_engine import CONTEXT_TOKENS, FakeEngine
from tests.server.running import running

BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
}


@pytest.mark.parametrize("path", BODIES)
def test_more_choices_than_are_held_at_all_are_refused_for_good(path):
    """To come back later, as 429 says, would help nobody."""
    with running(FakeEngine(), max_waiting=2) as server:
        for num_choices, status in ((2, 200), (3, 400)):
            body = {**BODIES[path], "n": num_choices, "max_tokens": 1}
            answer = httpx.post(f"{server.url}{path}", json=body)
            assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", "n")
    assert error["message"].startswith("'n' is 3, this server holds 2 ")


@pytest.mark.parametrize("path", BODIES)
def test_choices_are_counted_before_a_prompt_is_made(path):
    """What no context holds is not even looked at."""
    long = "x" * CONTEXT_TOKENS
    body = {"prompt": long, "messages": [{"role": "user", "content": long}], "n": 3}
    with running(FakeEngine(), max_waiting=2) as server:
        error = httpx.post(f"{server.url}{path}", json=body).json()["error"]
    assert error["param"] == "n"


def test_of_several_prompts_their_number_is_told_too():
    with running(FakeEngine(), max_waiting=5) as server:
        body = {"prompt": ["a", [98], "c"], "n": 2}
        message = httpx.post(f"{server.url}/v1/completions", json=body).json()["error"]["message"]
        ids = {"prompt": [97, 98, 99], "n": 2, "max_tokens": 1}
        assert httpx.post(f"{server.url}/v1/completions", json=ids).status_code == 200
    assert message.startswith("the number of prompts (3) times 'n' is 6, this server holds 5 ")
