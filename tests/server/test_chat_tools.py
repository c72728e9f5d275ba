# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning in chat completions, as the official OpenAI client sees them."""

import httpx
import msgspec
import openai
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tests.server.scripted_engine import call, scripted
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import decode_tool_choice, decode_tools

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
PATCH = {"type": "custom", "custom": {"name": "apply_patch", "description": "Patch."}}
HI = {"role": "user", "content": "hi"}
LS = call("bash", '{"command": "ls -la"}')
PWD = call("bash", '{"command": "pwd"}')
TOOLS = [BASH, PATCH]

ANSWERS = {
    "text": "Grüße, 世界!",
    "thought and text": "<think>\nHmm, 世.\n</think>\n\nYes.",
    "call": LS,
    "everything": f"<think>\nPlan.\n</think>\n\nLooking.\n{LS}\n{PWD}",
    "a custom call": call("apply_patch", '{"input": "+ü"}'),
    "nothing": "",
}


def ask(server, messages=(HI,), **fields):
    with server.client() as asking:
        return asking.chat.completions.create(model=MODEL, messages=list(messages), **fields)


def post(server, messages=(HI,), **fields):
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json={"messages": list(messages), **fields}, timeout=20)


def joined(server, messages=(HI,), **fields) -> list[dict]:
    """A stream's choices, each put together from its deltas."""
    made: dict[int, dict] = {}
    with server.client() as asking:
        for chunk in asking.chat.completions.create(
            model=MODEL, messages=list(messages), stream=True, **fields
        ):
            for choice in chunk.choices:
                into = made.setdefault(choice.index, {"content": "", "reasoning": "", "calls": []})
                _join(into, choice)
    return [made[i] for i in sorted(made)]


def _join(into: dict, choice) -> None:
    into["content"] += choice.delta.content or ""
    into["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
    into["finish_reason"] = choice.finish_reason
    for part in choice.delta.tool_calls or ():
        if part.index == len(into["calls"]):
            into["calls"].append({"id": part.id, "name": "", "text": ""})
        call_ = into["calls"][part.index]
        assert part.id is None or part.id == call_["id"]
        told = part.model_dump(exclude_none=True)
        called = told.get("function") or told["custom"]
        call_["name"] += called.get("name", "")
        call_["text"] += called["input"] if "input" in called else called["arguments"]


def plain(choice) -> dict:
    message = choice.message
    calls = [
        {
            "name": (c.custom if c.type == "custom" else c.function).name,
            "text": c.custom.input if c.type == "custom" else c.function.arguments,
        }
        for c in message.tool_calls or ()
    ]
    return {
        "content": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": calls,
        "finish_reason": choice.finish_reason,
    }


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_says_what_an_answer_in_one_piece_says(name):
    with scripted(ANSWERS[name]) as server:
        whole = ask(server, tools=TOOLS).choices[0]
        streamed = joined(server, tools=TOOLS)[0]
    ids = [call_.pop("id") for call_ in streamed["calls"]]
    assert streamed == plain(whole)
    assert len(set(ids)) == len(ids)


def test_a_call_has_its_form():
    with scripted(ANSWERS["everything"]) as server:
        answer = ask(server, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "Looking."
    assert message.reasoning_content == "Plan."
    assert [c.function.arguments for c in message.tool_calls] == [
        '{"command": "ls -la"}',
        '{"command": "pwd"}',
    ]
    assert all(c.id and c.type == "function" for c in message.tool_calls)


def test_content_is_null_where_there_are_only_calls():
    with scripted(LS) as server:
        assert ask(server, tools=TOOLS).choices[0].message.content is None


def test_the_clients_own_helper_follows_the_stream():
    strict = {**BASH, "function": {**BASH["function"], "strict": True}}
    with (
        scripted(ANSWERS["everything"]) as server,
        server.client() as asking,
        asking.chat.completions.stream(model=MODEL, messages=[HI], tools=[strict]) as stream,
    ):
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.done" in kinds
    assert [c.function.parsed_arguments for c in final.tool_calls] == [
        {"command": "ls -la"},
        {"command": "pwd"},
    ]


def test_a_whole_session_is_rendered_in_order():
    with scripted("Yes.") as server:
        answer = post(
            server,
            [
                {"role": "developer", "content": "Be brief."},
                HI,
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "I look.",
                    "tool_calls": [
                        {
                            "id": "a",
                            "type": "function",
                            "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                        },
                        {
                            "id": "b",
                            "type": "custom",
                            "custom": {"name": "apply_patch", "input": "+x"},
                        },
                    ],
                },
                {"role": "tool", "tool_call_id": "a", "content": "a.txt"},
                {
                    "role": "tool",
                    "tool_call_id": "b",
                    "content": [{"type": "text", "text": "d0ne"}],
                },
                {"role": "system", "content": "Be kind."},
            ],
            tools=TOOLS,
        )
        text = server.engine.heard[-1].text
    assert answer.status_code == 200
    words = [
        "Be brief.", '"name": "bash"', "hi", "<think>\nI look.\n</think>",
        '{"name": "bash", "arguments": {"command": "ls"}}', '{"input": "+x"}', "a.txt", "d0ne",
        "Be kind.",
    ]  # fmt: skip
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_taken_in_both_spellings(key):
    with scripted("Yes.") as server:
        post(server, [HI, {"role": "assistant", "content": "x", key: "th1nk"}, HI])
        assert "<think>\nth1nk\n</think>\n\nx" in server.engine.heard[-1].text


@pytest.mark.parametrize(
    ("effort", "is_off"), [("none", True), ("minimal", True), ("low", False), (None, False)]
)
def test_reasoning_effort_switches_thinking(effort, is_off):
    with scripted("Yes.") as server:
        post(server, reasoning_effort=effort)
        assert server.engine.heard[-1].text.endswith("</think>\n\n") == is_off


@pytest.mark.parametrize("stream", [False, True])
def test_one_call_is_the_most_where_parallel_calls_are_off(stream):
    with scripted(ANSWERS["everything"]) as server:
        fields = {"tools": TOOLS, "parallel_tool_calls": False}
        if stream:
            calls = joined(server, **fields)[0]["calls"]
        else:
            calls = ask(server, **fields).choices[0].message.tool_calls
        assert server.engine.seen[0].was_aborted
    assert len(calls) == 1


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_tool_choice_of_a_type_alone_is_that_mode(mode):
    """As Cursor writes it."""
    tools = decode_tools(TOOLS, Notes()).values()
    assert decode_tool_choice({"type": mode}, tools) == decode_tool_choice(mode, tools)
    assert decode_tool_choice(mode, tools).mode == mode


def test_tool_choice_none_makes_no_call_and_keeps_the_prompt():
    with scripted(LS) as server:
        ask(server, tools=TOOLS)
        answer = ask(server, tools=TOOLS, tool_choice="none")
        first, second = server.engine.heard
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert first.text == second.text


def test_each_choice_has_its_own_calls():
    def speak(seen):
        return f"Choice {seen.sampling.seed}.\n" + call(
            "bash", f'{{"command": "{seen.sampling.seed}"}}'
        )

    with running(FakeEngine(script=speak)) as server:
        server.engine.facts = msgspec.structs.replace(server.engine.facts, max_model_tokens=4000)
        choices = joined(server, tools=[BASH], n=3, seed=5)
    for i, choice in enumerate(choices):
        assert choice["content"] == f"Choice {5 + i}."
        assert [c["text"] for c in choice["calls"]] == [f'{{"command": "{5 + i}"}}']
        assert choice["finish_reason"] == "tool_calls"


def test_a_call_that_max_tokens_cuts_ends_for_length_and_is_marked():
    with scripted(call("bash", '{"command": "echo a long line"}')) as server:
        choice = ask(server, tools=TOOLS, max_tokens=60).choices[0]
        streamed = joined(server, tools=TOOLS, max_tokens=60)[0]
    assert choice.finish_reason == streamed["finish_reason"] == "length"
    assert choice.message.tool_calls[0].model_extra["incomplete"] is True
    assert streamed["calls"][0]["text"] == choice.message.tool_calls[0].function.arguments


@pytest.mark.parametrize("reply", [LS, '{"name": "bash", "arguments": {"command": "ls -la"}}'])
def test_a_forced_call_that_max_tokens_cuts_in_its_opening_is_no_text(reply):
    forced = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 12}
    with scripted(reply, tool_call_parser="hermes" if reply is LS else "json") as server:
        choice = ask(server, **forced).choices[0]
        streamed = joined(server, **forced)[0]
        message = httpx.post(
            f"{server.url}/v1/messages",
            json={
                "messages": [HI],
                "max_tokens": 12,
                "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any"},
            },
        ).json()
    assert choice.finish_reason == streamed["finish_reason"] == "length"
    assert not choice.message.content
    assert not streamed["content"]
    assert [f["reason"] for f in choice.model_extra["parse_failures"]] == ["truncated"]
    assert (message["stop_reason"], message["content"]) == ("max_tokens", [])
    assert [f["text"] for f in message["parse_failures"]] == [reply[:12]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_cannot_be_read_is_told_with_its_text(stream):
    with scripted('<tool_call>\n{"no": "call"}\n</tool_call>') as server:
        answer = post(server, tools=TOOLS, stream=stream)
    assert '"parse_failures":[{"parser":"hermes"' in answer.text
    assert "no" in answer.text


def test_special_tokens_that_are_asked_for_leave_the_text_as_it_is():
    with scripted(f"Looking.\n{LS}") as server:
        message = (
            ask(server, tools=TOOLS, extra_body={"skip_special_tokens": False}).choices[0].message
        )
    assert message.tool_calls is None
    assert message.content == f"Looking.\n{LS}"


def test_token_ids_are_told_once_whatever_the_parser_holds_back():
    with scripted(ANSWERS["everything"]) as server, server.client() as asking:
        ids = [
            token_id
            for chunk in asking.chat.completions.create(
                model=MODEL,
                messages=[HI],
                tools=TOOLS,
                stream=True,
                extra_body={"return_token_ids": True},
            )
            for choice in chunk.choices
            for token_id in choice.model_extra.get("token_ids") or ()
        ]
    assert bytes(ids).decode() == ANSWERS["everything"]


def test_a_users_image_is_refused_and_a_tools_is_a_remark():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    with scripted("Yes.") as server:
        with pytest.raises(openai.BadRequestError) as refused:
            ask(server, [{"role": "user", "content": [image]}])
        assert refused.value.param == "messages[0].content[0].type"
        called = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": ""}}
        ask(
            server,
            [
                HI,
                {"role": "assistant", "tool_calls": [called]},
                {"role": "tool", "tool_call_id": "a", "content": [image]},
            ],
        )
        assert "image or file was here" in server.engine.heard[-1].text
