# SPDX-License-Identifier: Apache-2.0
"""What one request may ask of a server that holds few."""

import httpx
import pytest

from tests.server.fake_engine import FakeEngine
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
