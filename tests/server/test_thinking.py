# SPDX-License-Identifier: Apache-2.0
"""A budget for reasoning reaches the engine, where the model's marks are tokens."""

import httpx
import pytest

from tests.server.fake_engine import ByteTokenizer, FakeEngine
from tests.server.running import make_server
from tests.server.scripted_engine import template
from tokenlight.config import ServerConfig
from tokenlight.wire import ThinkingBudget


class MarkedTokenizer(ByteTokenizer):
    def encode(self, text, **options):
        marks = {"<think>": [200], "</think>": [201]}
        return marks.get(text) or super().encode(text, **options)


@pytest.fixture(scope="module")
def server():
    made = make_server(
        FakeEngine(script="Yes."), ServerConfig(port=0), template(), MarkedTokenizer()
    )
    yield made
    made.stop()
    made.join()


@pytest.mark.parametrize(
    ("thinking", "num_tokens"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, 1024),
        ({"type": "adaptive"}, None),
        ({"type": "disabled", "budget_tokens": 1024}, None),
        (None, None),
    ],
)
def test_a_budget_of_messages_is_kept(server, thinking, num_tokens):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "thinking": thinking}
    assert httpx.post(f"{server.url}/v1/messages", json=body).status_code == 200
    expected = num_tokens and ThinkingBudget(
        num_tokens=num_tokens, opener=200, closer=201, ending=(ord("\n"), 201)
    )
    assert server.engine.seen[-1].sampling.thinking == expected
