# SPDX-License-Identifier: Apache-2.0
"""Area B at the door: tool calls as clients get them. The parser itself: `tests/text/parsing`."""

import json

import httpx
import msgspec
import pytest

from tests.expectations.agents import SCHEMA, data_of, post, say
from tests.server.scripted_engine import call, scripted

CHAT = "/v1/chat/completions"
TOOLS = {
    CHAT: [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}],
    "/v1/messages": [{"name": "bash", "input_schema": SCHEMA}],
    "/v1/responses": [{"type": "function", "name": "bash", "parameters": SCHEMA}],
}
PATHS = sorted(TOOLS)


def ask(server, path: str, *, stream: bool = False, **fields) -> httpx.Response:
    body = {"tools": TOOLS[path], "stream": stream, **fields}
    if path == "/v1/responses":
        body = {"input": "go", **body}
        body["max_output_tokens"] = body.pop("max_tokens", None)
    else:
        body = {"messages": [say("go")], "max_tokens": 10_000_000, **body}
    return post(server, path, body)


def arguments(path: str, answer: dict) -> list[str]:
    if path == CHAT:
        calls = answer["choices"][0]["message"].get("tool_calls", [])
        return [call_["function"]["arguments"] for call_ in calls]
    if path == "/v1/responses":
        return [i["arguments"] for i in answer["output"] if i["type"] == "function_call"]
    return [json.dumps(b["input"]) for b in answer["content"] if b["type"] == "tool_use"]


def streamed_arguments(events: list[dict]) -> list[str]:
    found: dict[int, str] = {}
    for event in events:
        for choice in event.get("choices", ()):
            for part in choice["delta"].get("tool_calls", ()):
                more = part["function"]["arguments"]
                found[part["index"]] = found.get(part["index"], "") + more
        if "choices" in event:
            continue
        delta = event.get("delta")
        if event["type"] == "response.function_call_arguments.delta":
            index, more = event["output_index"], delta
        elif event["type"] == "content_block_delta" and "partial_json" in delta:
            index, more = event["index"], delta["partial_json"]
        else:
            continue
        found[index] = found.get(index, "") + more
    return list(found.values())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("num_tokens", [1, 3, 64])
def test_t_b2(path, num_tokens):
    """Streamed arguments, joined, are those of the answer in one piece."""
    said = (
        call("bash", '{"command": "echo \\"ü\\" \\\\n", "timeout": 1.0}')
        + "\n"
        + call("bash", "{}")
    )
    with scripted(said) as server:
        server.engine.tokens_per_delta = num_tokens
        whole = arguments(path, ask(server, path).json())
        streamed = streamed_arguments(data_of(ask(server, path, stream=True).text))
    if path != "/v1/messages":
        assert streamed == whole
    assert list(map(json.loads, streamed)) == list(map(json.loads, whole))
    assert len(whole) == 2


@pytest.mark.parametrize(
    ("path", "stream"),
    [
        (CHAT, True),
        ("/v1/messages", False),
        pytest.param(CHAT, False, marks=pytest.mark.slow),
        pytest.param("/v1/messages", True, marks=pytest.mark.slow),
        pytest.param("/v1/responses", False, marks=pytest.mark.slow),
        pytest.param("/v1/responses", True, marks=pytest.mark.slow),
    ],
)
def test_t_b5(path, stream):
    """A megabyte of arguments passes; no control token reaches a client."""
    long = "0123456789abcde\n" * (1 << 16)
    said = "Text <|weird_token|>more.\n" + call("bash", json.dumps({"command": long}))
    with scripted(said) as server:
        server.engine.facts = msgspec.structs.replace(server.engine.facts, max_model_tokens=1 << 22)
        server.engine.tokens_per_delta = 997
        answer = ask(server, path, stream=stream)
    found = streamed_arguments(data_of(answer.text)) if stream else arguments(path, answer.json())
    assert [json.loads(one) for one in found] == [{"command": long}]
    assert "<|" not in answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "said",
    ['<tool_call>\n{"name": 7}\n</tool_call>', "<tool_call>nonsense</tool_call>", "<tool_call>"],
)
def test_t_b7(path, said):
    """An opener that leads to no call is a failure that is seen and counted."""
    with scripted(said) as server:
        answer = ask(server, path).json()
        counted = httpx.get(f"{server.url}/metrics").text
    assert not arguments(path, answer)
    told = answer["choices"][0] if path == CHAT else answer
    assert told["parse_failures"][0]["parser"] == "hermes"
    assert told["parse_failures"][0]["reason"]
    assert "tokenlight_parse_errors_total{" in counted


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_t_b8(path, stream):
    """A call that max_tokens cuts ends for length, and is marked."""
    with scripted(call("bash", '{"command": "echo something long"}')) as server:
        answer = ask(server, path, stream=stream, max_tokens=60)
    last = data_of(answer.text) if stream else [answer.json()]
    if path == "/v1/responses":
        response = last[-1]["response"] if stream else last[-1]
        assert response["status"] == "incomplete"
        assert response["output"][0]["status"] == "incomplete"
    elif path == CHAT:
        choice = last[-1]["choices"][0]
        assert choice["finish_reason"] == "length"
        if not stream:
            assert choice["message"]["tool_calls"][0]["incomplete"] is True
    else:
        ended = last[-2]["delta"] if stream else last[-1]
        assert ended["stop_reason"] == "max_tokens"
        if not stream:
            assert last[-1]["content"][0]["incomplete"] is True


def test_t_b10():
    """Failures have a counter of their own, by parser and reason."""
    with scripted("<tool_call>nonsense</tool_call>") as server:
        ask(server, "/v1/messages")
        ask(server, "/v1/messages")
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("tokenlight_parse_errors_total{")]
    assert len(counted) == 1
    assert 'parser="hermes"' in counted[0]
    assert 'reason="not_a_call"' in counted[0]
    assert counted[0].endswith(" 2.0")


OUTPUTS = [
    "plain",
    "",
    "<think>\nhm\n</think>\n\nyes",
    "<think>\nnever closed",
    call("bash", '{"command": "ls"}'),
    call("bash", '{"command": "l</parameter'),
    call("bash", '{"command": 1e999}'),
    call("nobody", "{}"),
    call("bash", "[1, 2]"),
    "<tool_call>nonsense</tool_call>",
    "<tool_call>",
    "\ufffd\x00 \u2028",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("said", OUTPUTS)
@pytest.mark.parametrize("max_tokens", [25, 60, 10_000])
def test_t_b11(path, said, max_tokens):
    """Whatever the server says it takes back."""
    with scripted(said) as server:
        answer = ask(server, path, max_tokens=max_tokens).json()
        if path == "/v1/responses":
            again = [{"role": "user", "content": "go"}, *answer["output"]]
            again += [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "out"}
                for item in answer["output"]
                if item["type"] == "function_call"
            ]
            taken = ask(server, path, input=again)
        elif path == CHAT:
            message = answer["choices"][0]["message"]
            results = [
                {"role": "tool", "tool_call_id": call_["id"], "content": "out"}
                for call_ in message.get("tool_calls", ())
            ]
            taken = ask(server, path, messages=[say("go"), message, *results, say("on")])
        else:
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": "out"}
                for block in answer["content"]
                if block["type"] == "tool_use"
            ]
            assistant = {"role": "assistant", "content": answer["content"]}
            last = {"role": "user", "content": [*results, {"type": "text", "text": "on"}]}
            taken = ask(server, path, messages=[say("go"), assistant, last])
    assert taken.status_code == 200
