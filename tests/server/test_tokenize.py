# SPDX-License-Identifier: Apache-2.0
"""What /tokenize makes of messages is the prompt that a chat makes of them."""

import httpx
import pytest

from tests.server.scripted_engine import scripted

CHAT = {
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": [
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
        {"type": "web_search"},
    ],
}


@pytest.fixture(scope="module")
def server():
    with scripted() as made:
        yield made


def test_tools_are_part_of_the_prompt(server):
    told = httpx.post(f"{server.url}/tokenize", json=CHAT)
    bare = httpx.post(f"{server.url}/tokenize", json={"messages": CHAT["messages"]})
    httpx.post(f"{server.url}/v1/chat/completions", json=CHAT)
    assert told.json()["tokens"] == list(server.engine.seen[-1].prompt_token_ids)
    assert told.json()["count"] > bare.json()["count"]
    assert told.headers["x-tokenlight-ignored"] == "web_search=1"


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "none"},
        {"reasoning_effort": "high"},
        {"add_generation_prompt": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_whatever_else_a_chat_says_the_prompts_are_the_same(server, fields):
    asked = {**CHAT, **fields}
    told = httpx.post(f"{server.url}/tokenize", json=asked)
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    assert told.json()["tokens"] == list(server.engine.seen[-1].prompt_token_ids)


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": "hi", "tools": CHAT["tools"]},
        {"prompt": "hi", "reasoning_effort": "none"},
        {"prompt": "hi", "chat_template_kwargs": {"enable_thinking": False}},
        {"prompt": "hi", "add_generation_prompt": True},
        {"messages": CHAT["messages"], "add_special_tokens": True},
    ],
    ids=lambda asked: list(asked)[-1],
)
def test_what_is_only_for_the_other_kind_is_refused(server, asked):
    name = list(asked)[-1]
    answer = httpx.post(f"{server.url}/tokenize", json=asked)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == name
    nothing = {**asked, name: None}
    assert httpx.post(f"{server.url}/tokenize", json=nothing).status_code == 200


def test_a_tool_without_a_name_is_refused(server):
    asked = {**CHAT, "tools": [{"type": "function", "function": {}}]}
    answer = httpx.post(f"{server.url}/tokenize", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools[0].name"
