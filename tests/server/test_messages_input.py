# SPDX-License-Identifier: Apache-2.0
"""What /v1/messages takes: every kind of block, tool and field, and what the model gets of it."""

import pytest

from tests.server.anthropic_asking import BASH, HI, ask, heard, post
from tests.server.scripted_engine import scripted


def test_a_whole_session_is_rendered_in_order():
    session = [
        {"role": "user", "content": [{"type": "text", "text": "What is here?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "anything"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "a.txt"}],
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "And now?"},
            ],
        },
        {"role": "system", "content": "Be kind."},
    ]
    with scripted("Yes.") as server:
        ask(server, session, tools=[BASH], system=[{"type": "text", "text": "You help."}])
        text = heard(server)
    words = [
        "You help.", '"name": "bash"', "What is here?", "<think>\nI look.\n</think>", "Looking.",
        '{"name": "bash", "arguments": {"command": "ls"}}',
        "<tool_response>\na.txt\n</tool_response>", "And now?", "Be kind.",
    ]  # fmt: skip
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}
FOUND = {
    "type": "search_result",
    "source": "u",
    "title": "t1tle",
    "content": [{"type": "text", "text": "f0und"}],
}
CALLED = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "bash", "input": {}}],
}
RESULT = {"type": "tool_result", "tool_use_id": "t"}
BLOCKS = {
    "redacted thinking": ("assistant", {"type": "redacted_thinking", "data": "opaque"}, ""),
    "unsigned thinking": ("assistant", {"type": "thinking", "thinking": "th1nk"}, "th1nk"),
    "a text document": (
        "user",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d0c"}},
        "d0c",
    ),
    "a search result": ("user", FOUND, "f0und"),
    "a server's tool": ("assistant", {"type": "server_tool_use", "id": "s", "input": {}}, ""),
    "its result": ("assistant", {"type": "web_search_tool_result", "content": []}, ""),
    "a kind of tomorrow": ("user", {"type": "hologram", "data": 1}, ""),
    "a container's file": ("user", {"type": "container_upload", "file_id": "f"}, ""),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_every_kind_of_block_is_taken(name):
    role, block, shown = BLOCKS[name]
    messages = [*HI, {"role": role, "content": [block, {"type": "text", "text": "and"}]}, *HI]
    with scripted("Yes.") as server:
        answer = post(server, messages=messages)
        text = heard(server)
    assert answer.status_code == 200
    assert shown in text
    assert "and" in text
    if not shown and block["type"] != "redacted_thinking":
        assert block["type"] in answer.headers["x-tokenlight-ignored"]


RESULTS = {
    "a text": ("out", "out"),
    "nothing": (None, ""),
    "an empty list": ([], ""),
    "blocks": ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
    "an image": ([IMAGE], "image or file was here"),
    "a reference to a tool": ([{"type": "tool_reference", "tool_name": "grep"}], "grep"),
    "a document": ([{"type": "document", "source": {"type": "base64", "data": "aGk="}}], "here"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_kind_of_result_is_taken(name):
    content, shown = RESULTS[name]
    messages = [
        *HI,
        CALLED,
        {"role": "user", "content": [{**RESULT, "content": content}]},
    ]
    with scripted("Yes.") as server:
        assert post(server, messages=messages, tools=[BASH]).status_code == 200
        text = heard(server)
    start = text.index("<tool_response>\n") + len("<tool_response>\n")
    assert shown in text[start : text.index("\n</tool_response>")]


def test_a_failed_result_says_so():
    messages = [
        *HI,
        CALLED,
        {"role": "user", "content": [{**RESULT, "content": "no", "is_error": True}]},
    ]
    with scripted("Yes.") as server:
        post(server, messages=messages, tools=[BASH])
        assert "<tool_response>\nError: no\n" in heard(server)


def test_a_users_image_is_refused_by_name():
    with scripted() as server:
        answer = post(server, messages=[{"role": "user", "content": [IMAGE]}])
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "messages[0].content[0].type" in answer.json()["error"]["message"]


def test_tools_without_schema_are_known_or_left_out():
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "later", "input_schema": {"type": "object"}, "defer_loading": True},
    ]
    with scripted("Yes.") as server:
        answer = post(server, tools=tools)
        text = heard(server)
    assert answer.headers["x-tokenlight-ignored"] == "web_search_20250305=1"
    assert '"name": "bash"' in text
    assert "insert_line" in text
    assert '"name": "later"' in text
    assert "web_search" not in text


@pytest.mark.parametrize("thinking", [None, {"type": "disabled"}])
def test_thinking_is_off_unless_asked_for(thinking):
    with scripted("Yes.") as server:
        post(server, thinking=thinking)
        assert heard(server).endswith("<think>\n\n</think>\n\n")
        post(server, thinking={"type": "enabled", "budget_tokens": 1024})
        assert not heard(server).endswith("</think>\n\n")


def test_an_answer_that_is_begun_is_continued():
    with scripted("42.") as server:
        messages = [*HI, {"role": "assistant", "content": "The answer is"}]
        assert ask(server, messages).content[0].text == "42."
        assert heard(server).endswith("<|im_start|>assistant\nThe answer is")


def test_fields_of_tomorrow_are_ignored():
    fields = {
        "metadata": {"user_id": "x"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "service_tier": "auto",
        "container": None,
        "mcp_servers": [],
        "a_new_field": {"deep": [1]},
        "top_k": 5,
        "top_p": 0.9,
        "temperature": 0.5,
    }
    with scripted("Yes.") as server:
        assert post(server, **fields).status_code == 200


def test_servers_of_tools_that_nobody_asks_here_are_named():
    servers = [{"type": "url", "url": "https://tools.example", "name": name} for name in "ab"]
    with scripted("Yes.") as server:
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = post(server, path, mcp_servers=servers)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-tokenlight-ignored"] == "mcp_servers=2"
            answer = post(server, path, mcp_servers=[])
            assert "x-tokenlight-ignored" not in answer.headers


def test_an_output_format_holds_wherever_it_is_sent():
    form = {"type": "json_schema", "schema": {"type": "object"}}
    with scripted("{}") as server:
        for fields in ({"output_config": {"format": form}}, {"output_format": form}):
            answer = post(server, **fields)
            assert answer.status_code == 200, answer.text
        one, other = (seen.sampling.grammar for seen in server.engine.seen)
    assert one is not None
    assert one == other
