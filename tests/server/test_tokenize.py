# SPDX-License-Identifier: Apache-2.0
"""What /tokenize makes of messages is the prompt that a chat makes of them."""

import httpx

from tests.server.scripted_engine import scripted

CHAT = {
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": [
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
        {"type": "web_search"},
    ],
}


def test_tools_are_part_of_the_prompt():
    with scripted() as server:
        told = httpx.post(f"{server.url}/tokenize", json=CHAT)
        bare = httpx.post(f"{server.url}/tokenize", json={"messages": CHAT["messages"]})
        httpx.post(f"{server.url}/v1/chat/completions", json=CHAT)
    assert told.json()["tokens"] == list(server.engine.seen[0].prompt_token_ids)
    assert told.json()["count"] > bare.json()["count"]
    assert told.headers["x-tokenlight-ignored"] == "web_search=1"


def test_a_tool_without_a_name_is_refused():
    with scripted() as server:
        asked = {**CHAT, "tools": [{"type": "function", "function": {}}]}
        answer = httpx.post(f"{server.url}/tokenize", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools[0].name"
