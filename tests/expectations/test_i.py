# SPDX-License-Identifier: Apache-2.0
"""Area I: what Claude Code and Codex need so that a session does not die."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest

from tests.expectations.agents import claude_code, codex, data_of, post, say
from tests.recorded.requests import every_recorded
from tests.server.fake_engine import FakeEngine
from tests.server.running import running
from tests.server.scripted_engine import scripted
from tokenlight.server.http import sse

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def test_t_i1():
    """Every documented kind of block in a history is taken."""
    assistant = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "yes"},
        {"type": "server_tool_use", "id": "s", "name": "tool_search", "input": {}},
        {"type": "tool_search_tool_result", "tool_use_id": "s", "content": {"type": "x"}},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
    ]
    result = [
        {"type": "text", "text": "out"},
        IMAGE,
        {"type": "tool_reference", "tool_name": "Later"},
        {"type": "document", "source": {"type": "text", "data": "doc"}},
        {"type": "search_result", "source": "u", "title": "t", "content": []},
    ]
    messages = [
        say("go"),
        {"role": "assistant", "content": assistant},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": result}],
        },
    ]
    with scripted("Yes.") as server:
        assert post(server, "/v1/messages", claude_code(messages)).status_code == 200


def test_t_i2():
    """Tools of unknown kinds never fail the request."""
    kinds = ["web_search", "computer_use_preview", "image_generation", "mcp", "tool_search", "new"]
    with scripted("Yes.") as server:
        body = codex([USER])
        body["tools"] += [{"type": kind} for kind in kinds]
        answer = post(server, "/v1/responses", body)
        text = server.engine.heard[-1].text
    assert answer.status_code == 200
    for offered in ("exec_command", "multi_agent_v1__close", "apply_patch"):
        assert f'"name": "{offered}"' in text
    assert "web_search" not in text


def early_codex(items: list[dict], **fields) -> dict:
    """Instructions in their field, a tool that runs at the client, no namespace, no metadata."""
    body = codex(items, **fields)
    del body["client_metadata"], body["prompt_cache_key"]
    body["instructions"] = body["input"].pop(0)["content"][0]["text"]
    body["tools"] = [body["tools"][0], {"type": "local_shell"}]
    return {**body, "reasoning": None, "include": []}


def middle_codex(items: list[dict], **fields) -> dict:
    """A patch tool with a grammar, effort, verbosity; input items without types."""
    body = codex([{k: v for k, v in i.items() if k != "type"} if "role" in i else i for i in items])
    lark = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    patch = {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": lark}
    body["tools"] = [body["tools"][0], patch, {"type": "web_search_preview"}]
    return {**body, "reasoning": {"effort": "high"}, "text": {"verbosity": "low"}, **fields}


@pytest.mark.parametrize("codex", [early_codex, middle_codex, codex])
@pytest.mark.parametrize("stream", [False, True])
def test_t_i3(codex, stream):
    """The requests of three versions of Codex, all of their fields, in both their turns."""
    with scripted("Yes.") as server:
        first = post(server, "/v1/responses", codex([USER], stream=stream))
        assert first.status_code == 200
        items = [
            USER,
            {"type": "reasoning", "summary": [], "encrypted_content": "of another server"},
            {
                "type": "function_call",
                "name": "exec_command",
                "arguments": '{"cmd":"ls"}',
                "call_id": "c",
            },
            {"type": "function_call_output", "call_id": "c", "output": "out"},
        ]
        assert post(server, "/v1/responses", codex(items, stream=stream)).status_code == 200
        assert not server.services.store.num_bytes


def test_t_i4():
    """Clients' probes are answered, with and without a key."""
    with running(api_key="k") as server:
        assert httpx.head(f"{server.url}/").status_code == 200
        assert httpx.head(f"{server.url}/api/hello").status_code == 200
        events = {"events": [{"event_type": "x"}]}
        assert post(server, "/api/event_logging/batch", events).status_code == 204


def test_t_i5():
    """The cache's share is in message_start and in the last delta, and the sum is the prompt."""
    with scripted("Yes.") as server:
        post(server, "/v1/messages", claude_code([say("go")]))
        events = data_of(post(server, "/v1/messages", claude_code([say("go")], stream=True)).text)
        num_prompt_tokens = server.engine.heard[-1].num_prompt_tokens
    start, last = events[0]["message"]["usage"], events[-2]["usage"]
    for usage in (start, last):
        assert usage["cache_read_input_tokens"] > 0.9 * num_prompt_tokens
        parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert sum(usage[part] for part in parts) == num_prompt_tokens


def test_t_i6():
    """A prompt that does not fit is refused, never cut, in words that make the client compact."""
    long = "word " * 100
    with running() as server:
        messages = post(server, "/v1/messages", {"messages": [say(long)], "max_tokens": 5})
        responses = post(server, "/v1/responses", {"input": long})
        chat = post(server, "/v1/chat/completions", {"messages": [say(long)]})
        streamed = post(
            server, "/v1/responses", {"input": long, "stream": True}, originator="codex_cli_rs"
        )
        assert not server.engine.seen
    assert messages.status_code == responses.status_code == chat.status_code == 400
    assert messages.json()["error"]["message"].startswith("prompt is too long: ")
    assert responses.json()["error"]["code"] == "context_length_exceeded"
    assert chat.json()["error"]["code"] == "context_length_exceeded"
    failed = data_of(streamed.text)[-1]
    assert failed["response"]["error"]["code"] == "context_length_exceeded"


STREAMS = {
    "/v1/messages": {"messages": [say("go")], "max_tokens": 50, "stream": True},
    "/v1/responses": {"input": "go", "stream": True},
    "/v1/chat/completions": {"messages": [say("go")], "stream": True},
    "/v1/completions": {"prompt": "go", "stream": True},
}
SIGNS_OF_LIFE = (": keep-alive", "event: ping", "event: response.in_progress")


@pytest.fixture(scope="module")
def slow_streams() -> dict[str, str]:
    """What each protocol's client hears of an engine that takes its time, all at once."""
    engine = FakeEngine(script="ab", first_token_s=0.7, token_s=0.4)

    def heard(path: str) -> str:
        return httpx.post(f"{server.url}{path}", json=STREAMS[path], timeout=60).text

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(STREAMS)) as pool:
        patch.setattr(sse, "KEEP_ALIVE_S", 0.1)
        with running(engine) as server:
            return dict(zip(STREAMS, pool.map(heard, STREAMS), strict=True))


@pytest.mark.parametrize("path", STREAMS)
def test_t_i7(path, slow_streams):
    """A sign of life each period, before the first token and between tokens; events stay sound."""
    text = slow_streams[path]
    events = data_of(text)
    blocks = [block for block in text.split("\n\n") if block]
    is_sign = [any(sign in block for sign in SIGNS_OF_LIFE) for block in blocks]
    first = next(i for i, block in enumerate(blocks) if '"a"' in block)
    second = next(i for i, block in enumerate(blocks) if '"b"' in block)
    # Twelve would fit before the first token, three between the two: how many do is the machine's.
    assert sum(is_sign[:first]) >= 2
    assert any(is_sign[first:second])
    if path == "/v1/responses":
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "ab"
    elif path == "/v1/messages":
        assert {event["type"] for event in events} >= {"ping", "message_start", "message_stop"}
    else:
        assert len(events) == len([block for block in blocks if block[:5] == "data:"]) - 1


@pytest.mark.slow
@pytest.mark.parametrize("path", STREAMS)
def test_t_i7_in_real_time(path):
    """Twelve silent seconds of prefill: no gap of ten."""
    engine = FakeEngine(script="ab", first_token_s=12)
    with (
        running(engine) as server,
        httpx.stream("POST", f"{server.url}{path}", json=STREAMS[path], timeout=30) as answer,
    ):
        arrived_s = [time.monotonic()]
        for _ in answer.iter_raw():
            arrived_s.append(time.monotonic())
    assert max(later - earlier for earlier, later in pairwise(arrived_s)) < 10
    assert arrived_s[-1] - arrived_s[0] > 4


@pytest.mark.parametrize("dialect", ["tools", "chatml"])
def test_t_i8(dialect):
    """count_tokens is what the same request then has."""
    body = claude_code([say("go"), {"role": "system", "content": "late"}])
    with scripted("Yes.", dialect=dialect) as server:
        counted = post(server, "/v1/messages/count_tokens", body).json()["input_tokens"]
        usage = post(server, "/v1/messages", body).json()["usage"]
    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize(
    "asked", every_recorded(), ids=lambda asked: f"{asked.client} {asked.path}"
)
def test_every_recorded_request_is_answered(asked):
    """The shapes of real clients, with their headers; streams end well."""
    with scripted("Yes.") as server:
        answer = httpx.post(server.url + asked.path, json=asked.body, headers=asked.headers)
    assert answer.status_code == 200, answer.text
    if asked.body.get("stream"):
        ends = ("[DONE]\n\n", '"message_stop"}\n\n', "response.completed")
        assert any(end in answer.text for end in ends)
