# SPDX-License-Identifier: Apache-2.0
"""Area A: prefix-cache misses in agent loops. The scripted engine counts what it has seen."""

import json
from itertools import pairwise

import pytest

from tests.expectations.agents import claude_code, codex, post, say
from tests.recorded.requests import CLIENTS, Session
from tests.server.scripted_engine import BLOCK_TOKENS, call, scripted


def share_cached(server) -> float:
    heard = server.engine.heard[-1]
    return heard.num_cached_tokens / heard.num_prompt_tokens


def test_t_a1():
    """A billing header that changes each request changes no token."""
    with scripted("Yes.") as server:
        first = post(server, "/v1/messages", claude_code([say("hi")], nonce="aaa"))
        second = post(server, "/v1/messages", claude_code([say("hi")], nonce="bbb")).json()
        texts = [heard.text for heard in server.engine.heard]
    assert first.headers["x-tokenlight-neutralized"] == "anthropic-billing-header=1"
    assert texts[0] == texts[1]
    usage = second["usage"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert usage["cache_read_input_tokens"] >= 0.99 * prompt


def test_t_a1_can_be_left_alone():
    with scripted("Yes.", volatile_lines="keep") as server:
        answer = post(server, "/v1/messages", claude_code([say("hi")], nonce="aaa"))
        assert "cch=aaaaaa" in server.engine.heard[-1].text
    assert "x-tokenlight-neutralized" not in answer.headers


def session(server, num_turns: int, *, budget: bool = False) -> list[float]:
    """Claude Code's loop of call and result; the hit rate of each turn."""
    messages, rates = [say("Do it.")], []
    for turn in range(num_turns):
        body = claude_code(messages, nonce=f"{turn:03}")
        if budget:
            text = f"<total_tokens>{200_000 - turn * 7} tokens left</total_tokens>"
            body["system"].insert(1, {"type": "text", "text": text})
        answer = post(server, "/v1/messages", body).json()
        rates.append(share_cached(server))
        messages.append({"role": "assistant", "content": answer["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"out {turn}"}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    return rates


def call_again(text: str) -> str:
    return f"Turn {text.count('<tool_response>')}.\n" + call("Bash", '{"command": "ls"}')


def test_t_a2():
    """A budget that counts down at the prompt's head changes no token."""
    with scripted(call_again) as server:
        rates = session(server, 6, budget=True)
    assert min(rates[1:]) >= 0.95


def plain_version(messages: list[dict], turn: int) -> dict:
    """An older Claude Code: one system text, no billing line, no thinking."""
    body = claude_code(messages)
    body["system"] = body["system"][-1]["text"]
    for field in ("thinking", "output_config", "context_management"):
        del body[field]
    return body


def marking_version(messages: list[dict], turn: int) -> dict:
    """One that moves its cache mark to the newest result; its billing line stays the same."""
    body = claude_code(messages, nonce="v2", thinking={"type": "enabled", "budget_tokens": 4000})
    marked = {"cache_control": {"type": "ephemeral"}}
    last = messages[-1]
    if isinstance(last["content"], list):
        *others, newest = last["content"]
        body["messages"] = [*messages[:-1], {**last, "content": [*others, {**newest, **marked}]}]
    return body


def reminding_version(messages: list[dict], turn: int) -> dict:
    """A newer one: a system turn behind the question, a checksum that changes each time."""
    reminder = {"role": "system", "content": [{"type": "text", "text": "Skills: none."}]}
    return claude_code([messages[0], reminder, *messages[1:]], nonce=f"{turn:03}")


@pytest.mark.parametrize("version", [plain_version, marking_version, reminding_version])
def test_t_a3(version):
    """Whatever its version: each turn of Claude Code finds the one before, but for one block."""
    with scripted(call_again) as server:
        messages = [say("Do it.")]
        for turn in range(8):
            answer = post(server, "/v1/messages", version(messages, turn)).json()
            messages.append({"role": "assistant", "content": answer["content"]})
            called = [block for block in answer["content"] if block["type"] == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": called[0]["id"], "content": f"{turn}"}
            messages.append({"role": "user", "content": [result]})
        heard = server.engine.heard
    for before, after in pairwise(heard):
        opened = len("<think>\n\n</think>\n\n") if version is plain_version else 0
        written = before.num_prompt_tokens - opened
        if not opened:
            written += len(before.reply.encode())
        assert after.num_cached_tokens >= written - BLOCK_TOKENS


@pytest.mark.parametrize("client", CLIENTS)
def test_t_a3_recorded(client):
    """Each client's recorded session: a turn finds the one before, but for one block."""
    recorded = Session(client)
    name, arguments = recorded.tool()

    def reply(text: str) -> str:
        said = call(name, json.dumps(arguments))
        return f"<think>\nStep {text.count('<tool_response>')}.\n</think>\n\nLooking.\n{said}"

    with scripted(reply) as server:
        for turn in range(8):
            answer = post(server, recorded.path, recorded.body, **recorded.headers)
            assert answer.status_code == 200, answer.text
            recorded.go_on(answer.json(), f"{turn} files\n" * (turn + 1))
        heard = server.engine.heard
    for before, after in pairwise(heard):
        written = before.num_prompt_tokens + len(before.reply.encode())
        assert after.num_cached_tokens >= written - BLOCK_TOKENS


def test_t_a4():
    """cache_control changes no token."""
    mark = {"cache_control": {"type": "ephemeral"}}
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    called = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
    with scripted("Yes.") as server:
        for marked in ({}, mark):
            messages = [
                {"role": "user", "content": [{**block, **marked} for block in content]},
                {"role": "assistant", "content": [{**called, **marked}]},
                {"role": "user", "content": [{**result, **marked}]},
            ]
            body = claude_code(messages)
            body["tools"] = [{**tool, **marked} for tool in body["tools"]]
            body["system"] = [{**block, **marked} for block in body["system"]]
            assert post(server, "/v1/messages", body).status_code == 200
        marked, unmarked = (seen.prompt_token_ids for seen in server.engine.seen)
    assert marked == unmarked


@pytest.mark.parametrize("dialect", ["tools", "forgetful", "stern", "chatml", "alternating"])
def test_t_a5(dialect):
    """A late system message leaves all tokens before it as they were, and is said."""
    history = [say("hi"), {"role": "assistant", "content": "Yes."}, say("go on")]
    with scripted("Yes.", dialect=dialect) as server:
        post(server, "/v1/messages", claude_code(history))
        before = server.engine.heard[-1].text
        late = [*history, {"role": "system", "content": "Now be careful."}]
        post(server, "/v1/messages", claude_code(late))
        after = server.engine.heard[-1].text
    stable = before[: before.index("go on") + len("go on")]
    assert after.startswith(stable)
    assert "Now be careful." in after[len(stable) :]


def test_t_a8():
    """What the model wrote is found again when it is sent back: all but the last block of it."""
    with scripted(call_again) as server:
        session(server, 10)
        heard = server.engine.heard
    for before, after in pairwise(heard):
        written = before.num_prompt_tokens + len(before.reply.encode())
        assert after.num_cached_tokens >= written - BLOCK_TOKENS


def test_t_a8_in_responses():
    """The same for Codex, whose reasoning comes back sealed."""

    def think(text: str) -> str:
        said = call("exec_command", '{"command": "ls"}')
        return f"<think>\nStep {text.count('<tool_response>')}.\n</think>\n\n{said}"

    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    with scripted(think) as server:
        for turn in range(6):
            answer = post(server, "/v1/responses", codex(items)).json()
            for item in answer["output"]:
                sent = {k: v for k, v in item.items() if k not in ("status", "content")}
                items.append(sent)
            call_id = answer["output"][-1]["call_id"]
            output = {"type": "function_call_output", "call_id": call_id, "output": f"out {turn}"}
            items.append(output)
        heard = server.engine.heard
    for before, after in pairwise(heard):
        written = before.num_prompt_tokens + len(before.reply.encode())
        assert after.num_cached_tokens >= written - BLOCK_TOKENS


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/chat/completions"])
def test_t_a11(path):
    """Whoever asks is told where a prompt parts from the one before it, and why."""

    def told(server, *messages: dict, key: str = "k") -> dict[str, str]:
        field = "input" if path == "/v1/responses" else "messages"
        body = {field: list(messages)}
        headers = {"x-tokenlight-explain": "1", "x-api-key": key}
        answer = post(server, path, body, **headers)
        parts = answer.headers["x-tokenlight-prefix"].split(", ")
        return dict(part.split("=") for part in parts)

    system = {"role": "system", "content": "You are an agent, and a good one."}
    said = {"role": "assistant", "content": "Yes."}
    with scripted("Yes.") as server:
        assert told(server, system, say("one"))["cause"] == "first"
        assert told(server, system, say("one"))["cause"] == "repeats"
        extended = told(server, system, say("one"), said, say("two"))
        assert extended["cause"] == "extends"
        changed = told(server, system, say("one"), said, say("other"))
        assert (changed["cause"], changed["turn"], changed["role"]) == ("changed", "3", "user")
        text = server.engine.heard[-1].text
        assert int(changed["common_tokens"]) == text.index("other")
        rewritten = told(server, {**system, "content": "You are an agent?"}, say("one"))
        assert (rewritten["cause"], rewritten["turn"]) == ("changed", "0")
        assert told(server, system, say("one"), key="another")["cause"] == "first"
        quiet = post(server, path, {"input": "x", "messages": [say("x")]})
    assert "x-tokenlight-prefix" not in quiet.headers
