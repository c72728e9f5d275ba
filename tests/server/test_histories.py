# SPDX-License-Identifier: Apache-2.0
"""What a history says reaches the model, in the older and odder forms that clients keep it in."""

import httpx
import pytest

from tests.server.scripted_engine import scripted

HI = {"role": "user", "content": "hi"}
FUNCTION = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


def chat(server, *messages, **fields):
    body = {"messages": [HI, *messages], **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=20)


def said(*parts: dict[str, object], **fields: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(parts), **fields}


def thinking(thought: object) -> dict[str, object]:
    return {"type": "thinking", "thinking": thought}


YES = {"type": "text", "text": "yes"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}
HISTORIES = {
    "a refusal": ([said(refusal="I will not.")], ["assistant\nI will not.<|im_end|>"]),
    "a part that is a thought": ([said(thinking("hm"), YES)], ["<think>\nhm\n</think>\n\nyes<|im"]),
    "a thought in parts": (
        [said(thinking([{"type": "text", "text": "hm"}, {"odd": 1}, 5]), YES)],
        ["<think>\nhm\n</think>\n\nyes<|im"],
    ),
    "a thought told twice": (
        [said(thinking("hm"), YES, reasoning_content="hm")],
        ["assistant\n<think>\nhm\n</think>\n\nyes<|im"],
    ),
    "a thought by LangChain": (
        [said({"type": "reasoning", "reasoning": "hm"}, YES)],
        ["<think>\nhm\n</think>\n\nyes<|im"],
    ),
    "a thought's summary": (
        [said({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, YES)],
        ["<think>\nhm\n</think>\n\nyes<|im"],
    ),
    "a refusal beside words": ([said(YES, refusal="NOPE")], ["assistant\nyes\nNOPE<|im_end|>"]),
    "a refusal told twice": (
        [said({"type": "refusal", "refusal": "NOPE"}, refusal="NOPE")],
        ["assistant\nNOPE<|im_end|>"],
    ),
    "a call among the content": (
        [
            said(YES, {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}),
            {"role": "tool", "tool_call_id": "c1", "content": "README"},
        ],
        ['yes\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}', "README"],
    ),
    "a thought without words": ([said({"type": "redacted_thinking"}, YES)], ["assistant\nyes<|im"]),
    "a picture of the assistant's": ([said(YES, PICTURE)], ["yes\n[an image or file was here"]),
    "a call of one function": (
        [
            said(function_call={"name": "bash", "arguments": '{"command": "ls"}'}),
            {"role": "function", "name": "bash", "content": "README"},
        ],
        ['"arguments": {"command": "ls"}', "<tool_response>\nREADME"],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_chat_s_history_reaches_the_model(name):
    messages, shown = HISTORIES[name]
    with scripted("Yes.") as server:
        answer = chat(server, *messages)
        assert answer.status_code == 200, answer.text
        heard = server.engine.heard[-1].text
    for text in shown:
        assert text in heard, heard
    assert "call is not known" not in heard


def test_parts_without_words_are_left_out_by_name():
    call = {"type": "tool-call", "toolName": "bash"}
    result = {"role": "tool", "tool_call_id": "c1", "content": [YES, {"type": "chart"}]}
    use = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}
    call_again = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    told = said(YES, call, {"type": "redacted_thinking", "data": "x"}, use, tool_calls=[call_again])
    with scripted("Yes.") as server:
        tokenized = {"messages": [HI, told, result]}
        for answer in (
            chat(server, told, result),
            httpx.post(f"{server.url}/tokenize", json=tokenized, timeout=20),
        ):
            assert answer.status_code == 200, answer.text
            ignored = answer.headers["x-tokenlight-ignored"].split(", ")
            assert sorted(ignored) == ["chart=1", "redacted_thinking=1", "tool-call=1"]
        heard = server.engine.heard[-1].text
    assert "image or file" not in heard
    assert heard.count("<tool_call>\n{") == 1, heard


def test_a_user_s_picture_is_still_refused():
    with scripted("Yes.") as server:
        answer = chat(server, {"role": "user", "content": [PICTURE]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (
        400,
        "messages[1].content[0].type",
    )


def test_a_document_keeps_its_title_and_its_context():
    source = {"type": "text", "media_type": "text/plain", "data": "Words."}
    document = {"type": "document", "source": source, "title": "A title", "context": "Of 1999."}
    with scripted("Yes.") as server:
        body = {"messages": [{"role": "user", "content": [document]}], "max_tokens": 9}
        assert httpx.post(f"{server.url}/v1/messages", json=body, timeout=20).status_code == 200
        assert "A title\nOf 1999.\nWords." in server.engine.heard[-1].text


def test_a_second_tool_of_a_name_is_named():
    message_tool = {"name": "bash", "input_schema": {"type": "object"}}
    response_tool = {"type": "function", **FUNCTION["function"]}
    asked = {
        "/v1/chat/completions": {"messages": [HI], "tools": [FUNCTION, FUNCTION]},
        "/v1/messages": {"messages": [HI], "max_tokens": 9, "tools": [message_tool, message_tool]},
        "/v1/responses": {"input": "hi", "tools": [response_tool, response_tool]},
    }
    with scripted("Yes.") as server:
        for path, body in asked.items():
            answer = httpx.post(server.url + path, json=body, timeout=20)
            assert answer.headers["x-tokenlight-ignored"] == "duplicate_tool:bash=1", path
            assert server.engine.heard[-1].text.count('"name": "bash"') == 1


def test_modes_that_nobody_knows_are_refused():
    allowed = {"mode": "sometimes", "tools": [FUNCTION]}
    with scripted("Yes.") as server:
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        answer = chat(server, tools=[FUNCTION], tool_choice=choice)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
        for mode, status in (("pro", 400), ("standard", 200)):
            body = {"input": "hi", "reasoning": {"mode": mode}}
            answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=20)
            assert answer.status_code == status, answer.text
