# SPDX-License-Identifier: Apache-2.0
"""Area C at the door: reasoning beside tools, and templates. Reading itself: `tests/text`."""

import pytest

from tests.expectations.agents import SCHEMA, post, say
from tests.server.scripted_engine import call, scripted

TOOLS = [{"name": "bash", "input_schema": SCHEMA}]
THINKING = {"type": "enabled", "budget_tokens": 1024}
LS = call("bash", '{"command": "ls"}')


def ask(server, messages=None, **fields):
    body = {"messages": messages or [say("go")], "max_tokens": 10_000, "tools": TOOLS}
    answer = post(server, "/v1/messages", {**body, "thinking": THINKING, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def kinds(answer: dict) -> list[str]:
    return [block["type"] for block in answer["content"]]


def test_t_c1():
    """A call inside the reasoning is a call."""
    with scripted(f"<think>\nI must look.\n{LS}") as server:
        answer = ask(server)
    assert kinds(answer) == ["thinking", "tool_use"]
    assert answer["stop_reason"] == "tool_use"


def test_t_c2():
    """A call that the reasoning only quotes is reasoning."""
    with scripted(f"<think>\nAn example:\n{LS}\nis how it is done.\n</think>\n\nYes.") as server:
        answer = ask(server)
    assert kinds(answer) == ["thinking", "text"]
    assert "<tool_call>" in answer["content"][0]["thinking"]


def test_t_c4():
    """Reasoning of earlier turns is rendered where the template wants it, from both protocols."""
    thought = {"type": "thinking", "thinking": "I must look.", "signature": ""}
    called = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
    with scripted("Yes.") as server:
        assistant = {"role": "assistant", "content": [thought, called]}
        ask(server, [say("go"), assistant, {"role": "user", "content": [result]}])
        from_messages = server.engine.heard[-1].text
        items = [
            {"role": "user", "content": "go"},
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "I must look."}],
            },
            {
                "type": "function_call",
                "call_id": "t",
                "name": "bash",
                "arguments": '{"command": "ls"}',
            },
            {"type": "function_call_output", "call_id": "t", "output": "out"},
        ]
        tools = [{"type": "function", "name": "bash", "parameters": SCHEMA}]
        body = {"input": items, "tools": tools, "reasoning": {"effort": "high"}}
        assert post(server, "/v1/responses", body).status_code == 200
        from_responses = server.engine.heard[-1].text
    assert "<think>\nI must look.\n</think>" in from_messages
    assert from_messages == from_responses


@pytest.mark.parametrize("num_tokens", range(1, 12))
def test_t_c4b(num_tokens):
    """However the markers are split: no reasoning in the text, no call lost."""
    with scripted(f"<think>\nI must look.\n</think>\n\nLooking.\n{LS}") as server:
        server.engine.tokens_per_delta = num_tokens
        answer = ask(server)
        none = ask(server, tool_choice={"type": "none"})
    assert kinds(answer) == ["thinking", "text", "tool_use"]
    assert answer["content"][0]["thinking"] == "I must look."
    assert answer["content"][1]["text"] == "Looking."
    assert "tool_use" not in kinds(none)


@pytest.mark.parametrize("dialect", ["tags", "tools", "nines", "chatml"])
@pytest.mark.parametrize("written", ['{"command": "ls"}', '{"command": "l', "", "[]", "not json"])
def test_t_c5(dialect, written):
    """A template that wants an object gets one; a broken argument string renders all the same."""
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "t", "name": "bash", "arguments": written},
        {"type": "function_call_output", "call_id": "t", "output": "out"},
    ]
    tools = [{"type": "function", "name": "bash", "parameters": SCHEMA}]
    with scripted("Yes.", dialect=dialect) as server:
        answer = post(server, "/v1/responses", {"input": items, "tools": tools})
        text = server.engine.heard[-1].text
    assert answer.status_code == 200
    if "ls" in written:
        assert "ls" in text[text.index("go") :]
    mended = answer.headers.get("x-tokenlight-mended", "")
    assert ("broken_arguments" in mended) == (written not in ('{"command": "ls"}', ""))


@pytest.mark.parametrize(
    "dialect", ["tools", "stern", "forgetful", "alternating", "nines", "chatml"]
)
@pytest.mark.parametrize("roles", ["s", "us", "asu", "uas", "uusa", "aus", "ssuuaa"])
def test_t_c6(dialect, roles):
    """Any order of roles renders."""
    names = {"s": "system", "u": "user", "a": "assistant"}
    messages = [{"role": names[role], "content": f"word{i}"} for i, role in enumerate(roles)]
    with scripted("Yes.", dialect=dialect) as server:
        ask(server, messages, tools=[])
        text = server.engine.heard[-1].text
    assert all(f"word{i}" in text for i in range(len(roles)))
