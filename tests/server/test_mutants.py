# SPDX-License-Identifier: Apache-2.0
"""Agents' requests, damaged at random places: every answer is a success or the caller's error."""

import copy
import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.expectations.agents import claude_code, codex, say
from tests.server.scripted_engine import scripted

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "out"}]}
BODIES = {
    "/v1/messages": claude_code(
        [
            say("go"),
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "tl1.xxx"},
                    {"type": "text", "text": "yes"},
                    {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            {"role": "user", "content": [RESULT, {"type": "text", "text": "on"}]},
        ],
        tool_choice={"type": "tool", "name": "Bash"},
        stop_sequences=["x"],
    ),
    "/v1/responses": codex(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "tl1.xxx"},
            {"type": "function_call", "call_id": "c", "name": "exec_command", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "out"},
            {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "text"}]},
        ],
        text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        instructions="x",
        metadata={"a": "b"},
    ),
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "out"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "bash"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "stop": ["x"],
        "n": 2,
    },
    "/v1/messages/count_tokens": claude_code([say("go")]),
}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "text", "x", "message", "user", "tool", "{", '{"a": 1}', "auto", "none"])
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "name", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(node: object, path: tuple = ()) -> list[tuple]:
    inner: list[tuple] = []
    if isinstance(node, dict):
        inner = list(node.items())
    elif isinstance(node, list):
        inner = list(enumerate(node))
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@st.composite
def damaged(draw, body: dict) -> dict:
    made = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        *path, key = draw(st.sampled_from([p for p in places(made) if p]))
        node = made
        for step in path:
            node = node[step]
        match draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                node[key] = draw(values)
            case "remove":
                del node[key]
            case "repeat" if isinstance(node, list):
                node.append(copy.deepcopy(node[key]))
    return made


@pytest.fixture(scope="module")
def server():
    with scripted("<think>\nhm\n</think>\n\nyes") as made:
        yield made


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_damaged_request_is_answered_or_refused(server, path, stream):
    with httpx.Client(base_url=server.url, timeout=20) as client:

        @settings(
            max_examples=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(damaged({**BODIES[path], "stream": stream}))
        def check(body):
            answer = client.post(path, content=json.dumps(body))
            assert answer.status_code in (200, 400, 404), answer.text
            if answer.status_code != 200:
                assert answer.json()["error"]["message"]
            assert "internal_error" not in answer.text

        check()


@pytest.mark.parametrize("dialect", ["tools", "tags", "chatml", "alternating"])
@pytest.mark.parametrize("depth", [50, 300, 600, 850, 890])
def test_what_nests_deeply_is_answered_or_refused(dialect, depth):
    deep: dict = {"type": "object"}
    for _ in range(depth // 2):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [{"name": "bash", "input_schema": deep}]
    functions = [{"type": "function", "name": "bash", "parameters": deep}]
    called = {"type": "tool_use", "id": "t", "name": "bash", "input": deep}
    arguments = json.dumps(deep)
    item = {"type": "function_call", "call_id": "c", "name": "bash", "arguments": arguments}
    asked = {
        "/v1/messages": [
            {"messages": [say("x")], "tools": tools},
            {"messages": [say("x"), {"role": "assistant", "content": [called]}]},
            {"messages": [say("x")], "tools": tools, "tool_choice": {"type": "any"}},
        ],
        "/v1/responses": [
            {"input": "x", "tools": functions},
            {"input": [item]},
            {"input": "x", "text": {"format": {"type": "json_schema", "schema": deep}}},
        ],
    }
    with scripted("yes", dialect=dialect) as server:
        for path, bodies in asked.items():
            for body in bodies:
                answer = httpx.post(f"{server.url}{path}", content=json.dumps(body), timeout=30)
                assert answer.status_code in (200, 400), answer.text[:2000]
