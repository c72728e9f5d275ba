# SPDX-License-Identifier: Apache-2.0
"""/v1/responses as the official OpenAI client sees it."""

import json

import httpx
import openai
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tests.server.scripted_engine import call, scripted

BASH = {
    "type": "function",
    "name": "bash",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    "strict": False,
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patch.",
    "format": {"type": "text"},
}
HI = {"role": "user", "content": "hi"}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Sub-agents.",
    "tools": [{"type": "function", "name": "close", "parameters": {"type": "object"}}],
}
LS = call("bash", '{"command": "ls -la"}')
PWD = call("bash", '{"command": "pwd"}')


def ask(server, input="hi", **fields):
    with server.client() as asking:
        return asking.responses.create(model=MODEL, input=input, **fields)


def events_of(server, input="hi", **fields):
    with server.client() as asking:
        return list(asking.responses.create(model=MODEL, input=input, stream=True, **fields))


def post(server, input="hi", **fields):
    return httpx.post(f"{server.url}/v1/responses", json={"input": input, **fields}, timeout=20)


def heard(server) -> str:
    return server.engine.heard[-1].text


ANSWERS = {
    "text": "Grüße, 世界!",
    "thought and text": "<think>\nHmm, 世.\n</think>\n\nYes.",
    "call": LS,
    "everything": f"<think>\nPlan.\n</think>\n\nLooking.\n{LS}\n{PWD}",
    "a custom call": call("apply_patch", '{"input": "*** Begin\\n+ü"}'),
    "a call in a namespace": call("agents__close", '{"target": "x"}'),
    "nothing": "",
}
TOOLS = [BASH, PATCH, AGENTS, {"type": "web_search", "external_web_access": True}]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_says_what_an_answer_in_one_piece_says(name):
    with scripted(ANSWERS[name]) as server:
        whole = ask(server, tools=TOOLS)
        with (
            server.client() as asking,
            asking.responses.stream(model=MODEL, input="hi", tools=TOOLS) as stream,
        ):
            events = list(stream)
            streamed = stream.get_final_response()
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert [_plain(item) for item in streamed.output] == [_plain(item) for item in whole.output]
    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert [_plain(item) for item in done] == [_plain(item) for item in whole.output]
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def _plain(item) -> dict:
    made = item.model_dump(exclude_none=True)
    for content in made.get("content") or []:
        content.pop("parsed", None)
    return {k: v for k, v in made.items() if k not in ("id", "call_id", "parsed_arguments")}


def test_items_have_their_kinds_in_order():
    with scripted(ANSWERS["everything"]) as server:
        answer = ask(server, tools=TOOLS)
    kinds = [item.type for item in answer.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    assert answer.output[0].content[0].text == "Plan."
    assert answer.output_text == "Looking."
    assert answer.output[2].arguments == '{"command": "ls -la"}'
    assert answer.output[2].call_id != answer.output[3].call_id
    assert answer.status == "completed"
    assert answer.usage.output_tokens_details.reasoning_tokens > 0


def test_each_event_follows_the_protocol_to_the_letter():
    with scripted(ANSWERS["everything"]) as server:
        text = post(server, stream=True, tools=[BASH]).text
    events = [
        dict(line.split(": ", 1) for line in e.splitlines()) for e in text.strip().split("\n\n")
    ]
    data = [json.loads(event["data"]) for event in events]
    assert [event["event"] for event in events] == [d["type"] for d in data]
    kinds = [d["type"].removeprefix("response.") for d in data]
    once = [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]
    call_events = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert once == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        *call_events,
        *call_events,
        "completed",
    ]
    ids = {d["output_index"]: d["item"]["id"] for d in data if "item" in d}
    assert all(ids[d["output_index"]] == d["item_id"] for d in data if "item_id" in d)
    for kind in ("output_text", "reasoning_text", "function_call_arguments"):
        deltas: dict[str, str] = {}
        for d in data:
            if d["type"] == f"response.{kind}.delta":
                deltas[d["item_id"]] = deltas.get(d["item_id"], "") + d["delta"]
        done = {
            d["item_id"]: d.get("text", d.get("arguments"))
            for d in data
            if d["type"] == f"response.{kind}.done"
        }
        assert deltas == done
        assert done


def test_a_custom_tool_is_called_with_text():
    with scripted(ANSWERS["a custom call"]) as server:
        item = ask(server, tools=TOOLS).output[0]
        events = events_of(server, tools=TOOLS)
    assert (item.type, item.name, item.input) == (
        "custom_tool_call",
        "apply_patch",
        "*** Begin\n+ü",
    )
    kinds = [e.type.removeprefix("response.") for e in events]
    assert "custom_tool_call_input.delta" in kinds
    assert "custom_tool_call_input.done" in kinds
    assert not any("function_call" in kind for kind in kinds)


def test_a_tool_in_a_namespace_is_called_by_both_names():
    with scripted(ANSWERS["a call in a namespace"]) as server:
        item = ask(server, tools=TOOLS).output[0]
        assert (item.type, item.namespace, item.name) == ("function_call", "agents", "close")
        ask(
            server,
            [
                HI,
                item.model_dump(exclude_none=True),
                {"type": "function_call_output", "call_id": item.call_id, "output": "closed"},
            ],
            tools=TOOLS,
        )
        assert '{"name": "agents__close", "arguments": {"target": "x"}}' in heard(server)


def test_what_says_nothing_to_a_model_is_left_out_and_named():
    anthropics = {"name": "look", "input_schema": {"type": "object"}}
    odd = [HI, {"odd": 1}, {**HI, "content": [{"odd": 1}, {"type": "input_text", "text": "a"}]}]
    with scripted("Yes.") as server:
        tools = [*TOOLS, {"type": "mcp", "server_label": "x"}, anthropics]
        answer = post(server, input=odd, tools=tools)
    assert answer.status_code == 200
    ignored = answer.headers["x-tokenlight-ignored"]
    assert sorted(ignored.split(", ")) == [
        "item=1", "mcp=1", "part=1", "tool=1", "web_search=1",
    ]  # fmt: skip


def test_the_answer_repeats_what_was_asked():
    with scripted("Yes.") as server:
        answer = ask(
            server,
            instructions="Be brief.",
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            metadata={"a": "b"},
            tools=[BASH],
            tool_choice="auto",
            parallel_tool_calls=False,
            store=False,
            extra_body={"prompt_cache_key": "k", "client_metadata": {"x": "y"}},
        )
        sent = server.engine.seen[0]
    assert (answer.instructions, answer.metadata) == ("Be brief.", {"a": "b"})
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (0.5, 0.9, 100)
    assert (answer.parallel_tool_calls, answer.prompt_cache_key) == (False, "k")
    assert answer.tools[0].name == "bash"
    assert (sent.sampling.temperature, sent.sampling.top_p) == (0.5, 0.9)
    assert sent.max_new_tokens == 100
    assert answer.usage.input_tokens == len(sent.prompt_token_ids)


def test_a_text_that_is_cut_is_an_incomplete_item():
    with running(FakeEngine(script="Hello, world")) as server:
        answer = server.client().responses.create(model=MODEL, input="hi", max_output_tokens=5)
        whole = server.client().responses.create(model=MODEL, input="hi")
    assert (answer.output[0].status, whole.output[0].status) == ("incomplete", "completed")


def test_max_output_tokens_makes_it_incomplete():
    with scripted(f"Looking.\n{LS}") as server:
        answer = ask(server, tools=[BASH], max_output_tokens=60)
        events = events_of(server, tools=[BASH], max_output_tokens=60)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[-1].status == "incomplete"
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_comes_back_through_its_sealed_form(stream):
    include = ["reasoning.encrypted_content"]
    with scripted("<think>\nA secret plan.\n</think>\n\nYes.") as server:
        if stream:
            answer = events_of(server, include=include)[-1].response
        else:
            answer = ask(server, include=include)
        reasoning, message = (item.model_dump(exclude_none=True) for item in answer.output)
        assert reasoning["encrypted_content"]
        del reasoning["content"]
        ask(
            server,
            [
                HI,
                reasoning,
                message,
                {"role": "user", "content": "x"},
            ],
        )
        assert "<think>\nA secret plan.\n</think>\n\nYes." in heard(server)


def test_reasoning_effort_switches_thinking():
    with scripted("Yes.") as server:
        ask(server, reasoning={"effort": "none"})
        assert heard(server).endswith("<think>\n\n</think>\n\n")
        ask(server, reasoning={"effort": "high", "summary": "auto"})
        assert not heard(server).endswith("</think>\n\n")


# What may stand in an input, and the words that the model then reads, in order.
INPUTS = {
    "a text": ("hello", ["hello"]),
    "messages without type": (
        [{"role": "developer", "content": "d3v"}, {"role": "user", "content": "us3r"}],
        ["<|im_start|>system\nd3v", "<|im_start|>user\nus3r"],
    ),
    "parts": (
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "p4rt"}]}],
        ["p4rt"],
    ),
    "an assistant in pieces is one turn": (
        [
            HI,
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "th1nk"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "s4y"}]},
            {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r3sult"},
        ],
        [
            "<|im_start|>assistant\n<think>\nth1nk\n</think>\n\ns4y\n<tool_call>\n"
            '{"name": "bash", "arguments": {}}\n</tool_call><|im_end|>',
            "r3sult",
        ],
    ),
    "a custom call": (
        [
            HI,
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "p4tch"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "d0ne"},
        ],
        ['"apply_patch", "arguments": {"input": "p4tch"}', "d0ne"],
    ),
    "a shell call": (
        [
            HI,
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["l5"]}},
            {"type": "local_shell_call_output", "call_id": "c", "output": "f1les"},
        ],
        ['"local_shell", "arguments": {"action": {"command": ["l5"]}}', "f1les"],
    ),
    "an output of parts": (
        [
            HI,
            {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "0ut"}, {"type": "input_image"}],
            },
        ],
        ["0ut", "image or file was here"],
    ),
    "kinds of tomorrow": (
        [
            HI,
            {"type": "web_search_call", "id": "w", "status": "completed"},
            {"type": "compaction", "encrypted_content": "x"},
            {"type": "hologram"},
            {"role": "user", "content": [{"type": "text", "text": "st1ll"}, {"type": "smell"}]},
        ],
        ["hi", "st1ll"],
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_kind_of_item_is_taken(name):
    sent, words = INPUTS[name]
    with scripted("Yes.") as server:
        assert post(server, sent, tools=[BASH]).status_code == 200
        text = heard(server)
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{**HI, "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "nope"}}, "tool_choice"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_refusals_name_the_field(fields, param):
    with running() as server:
        answer = post(server, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_log_probabilities_of_a_response_are_refused_by_either_name():
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    with running() as server:
        for param, value in asked.items():
            answer = post(server, **{param: value})
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("unsupported_parameter", param)
        assert post(server, include=["reasoning.encrypted_content"]).status_code == 200


def test_a_prompt_that_does_not_fit_is_a_400_with_its_code():
    with running() as server, pytest.raises(openai.BadRequestError) as refused:
        ask(server, "x" * 500)
    assert refused.value.code == "context_length_exceeded"


def test_codex_is_told_in_the_stream_so_that_it_compacts():
    with running() as server:
        body = {"input": "x" * 500, "stream": True}
        url, headers = f"{server.url}/v1/responses", {"originator": "codex_exec"}
        answer = httpx.post(url, json=body, headers=headers)
    assert answer.status_code == 200
    data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [d["type"] for d in data][-1] == "response.failed"
    assert data[-1]["response"]["status"] == "failed"
    assert data[-1]["response"]["error"]["code"] == "context_length_exceeded"


def test_a_failure_in_mid_stream_is_a_failed_response():
    with running(FakeEngine(fail_after=3)) as server:
        events = events_of(server)
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "engine_dead"
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_a_failure_before_the_first_token_has_a_status():
    with running(FakeEngine(fail_after=0)) as server, pytest.raises(openai.InternalServerError):
        events_of(server)
