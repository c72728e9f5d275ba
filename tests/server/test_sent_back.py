# SPDX-License-Identifier: Apache-2.0
"""Items that clients of Responses send back: every form that the protocol lets a result have."""

import httpx
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from tests.server.scripted_engine import scripted

HI = {"role": "user", "content": "hi"}


def ask(server, items):
    return httpx.post(f"{server.url}/v1/responses", json={"input": items}, timeout=20)


def called(name: str, **fields: object) -> dict[str, object]:
    return {"type": "function_call", "name": name, "arguments": "{}", **fields}


SHELL = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
RESULTS = {
    "of a function, without the call's id": (
        [called("one", call_id="a"), called("two", call_id="b")],
        {"type": "function_call_output", "name": "two", "output": "it is done"},
        "it is done",
    ),
    "of a custom tool, without the call's id": (
        [{"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "x"}],
        {"type": "custom_tool_call_output", "call_id": None, "output": "patched"},
        "patched",
    ),
    "of a local shell, whose id is the call's": (
        [{"type": "local_shell_call", "call_id": "c", "id": "ls_1", "action": {}}],
        {"type": "local_shell_call_output", "id": "c", "output": "README"},
        "README",
    ),
    "of a shell, in parts without a type": (
        [SHELL],
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "README", "stderr": "", "outcome": {"type": "exit"}}],
        },
        '{"stdout":"README"',
    ),
    "that is an object of a file": (
        [called("one", call_id="a")],
        {"type": "function_call_output", "call_id": "a", "output": {"type": "file", "path": "p"}},
        '{"type":"file","path":"p"}',
    ),
    "that is an object": (
        [called("one", call_id="a")],
        {"type": "function_call_output", "call_id": "a", "output": {"type": "sum", "value": 5}},
        '{"type":"sum","value":5}',
    ),
    "of a patch that failed": (
        [{"type": "apply_patch_call", "call_id": "c", "operation": {}}],
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        "Error: no",
    ),
    "of a computer, a picture": (
        [{"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}}],
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"},
        },
        "[an image or file was here",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_reaches_the_model(name):
    calls, result, shown = RESULTS[name]
    with scripted("Yes.") as server:
        answer = ask(server, [HI, *calls, result])
        assert answer.status_code == 200, answer.text
        heard = server.engine.heard[-1].text
    assert f"<tool_response>\n{shown}" in heard
    assert "base64" not in heard
    assert "x-tokenlight-ignored" not in answer.headers
    assert answer.headers.get("x-tokenlight-mended") in (None, "missing_call_id=1")


@pytest.mark.parametrize("kind", [None, 5, [], {}, ""])
def test_an_item_whose_type_is_no_kind_is_named(kind):
    with scripted("Yes.") as server:
        answer = ask(server, [HI, {"type": kind, "id": "x", "call_id": "c", "output": "o"}])
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-tokenlight-ignored"]


def test_a_memory_tool_is_one_that_the_client_runs():
    memory = {"type": "memory_20250818", "name": "memory"}
    with scripted("Yes.") as server:
        body = {"messages": [HI], "max_tokens": 9, "tools": [memory]}
        answer = httpx.post(f"{server.url}/v1/messages", json=body, timeout=20)
        assert '"rename"' in server.engine.heard[-1].text
    assert "x-tokenlight-ignored" not in answer.headers


def test_a_reference_may_lack_its_type():
    with scripted("Stored words.") as server:
        item = ask(server, "hi").json()["output"][0]
        answer = ask(server, [{"id": item["id"]}, HI])
        assert answer.status_code == 200, answer.text
        assert "Stored words." in server.engine.heard[-1].text
        unknown = ask(server, [{"id": "msg_unknown"}, HI])
    assert 400 <= unknown.status_code < 500
    assert "x-tokenlight-ignored" not in answer.headers


def test_items_are_listed_as_the_official_client_reads_them():
    sent = [
        HI,
        {"role": "assistant", "content": "hello"},
        {"role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        called("one", call_id="a"),
        {"type": "function_call_output", "call_id": "a", "output": "x", "status": "incomplete"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "user", "content": None},
    ]
    with scripted("Yes.") as server:
        id = ask(server, sent).json()["id"]
        listed = httpx.get(f"{server.url}/v1/responses/{id}/input_items?order=asc").json()["data"]
    assert len(listed) == len(sent)
    for item in listed:
        TypeAdapter(ResponseItem).validate_python(item)
    assert listed[0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert listed[1]["content"][0]["text"] == "hello"
    assert [item["status"] for item in listed[3:5]] == ["completed", "incomplete"]


def test_usage_has_what_the_official_client_requires():
    with scripted("Yes.") as server:
        usage = ask(server, "hi").json()["usage"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_no_share_of_the_tokens_is_the_likeliest_one(path):
    asked = {"input": "hi"} if path == "/v1/responses" else {"messages": [HI]}
    with scripted("Yes.") as server:
        for top_p in (0, 1):
            body = {**asked, "top_p": top_p}
            assert httpx.post(server.url + path, json=body, timeout=20).status_code == 200
        shares = [seen.sampling.top_p for seen in server.engine.seen]
    assert 0 < shares[0] <= 1e-6
    assert shares[1] == 1
