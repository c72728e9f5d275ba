# SPDX-License-Identifier: Apache-2.0
"""/v1/messages and count_tokens as the official Anthropic client sees them."""

import json

import anthropic
import httpx
import pytest

from tests.server.anthropic_asking import BASH, HI, ask, client, events_of, heard, post
from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tests.server.scripted_engine import call, scripted

LS = call("bash", '{"command": "ls -la"}')
PWD = call("bash", '{"command": "pwd"}')
ANSWERS = {
    "text": "Grüße, 世界!",
    "thought and text": "<think>\nHmm, 世.\n</think>\n\nYes.",
    "call": LS,
    "text and call": f"Looking.\n{LS}",
    "two calls": f"{LS}\n{PWD}",
    "everything": f"<think>\nPlan.\n</think>\n\nLooking.\n{LS}\n{PWD}",
    "nothing": "",
    "a broken call": '<tool_call>\n{"name": "bash", "arg',
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_says_what_an_answer_in_one_piece_says(name):
    with scripted(ANSWERS[name]) as server:
        fields = {"tools": [BASH], "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = ask(server, **fields)
        with (
            client(server) as asking,
            asking.messages.stream(model=MODEL, max_tokens=1000, messages=HI, **fields) as stream,
        ):
            types = [event.type for event in stream]
            streamed = stream.get_final_message()
    assert types[0] == "message_start"
    assert types[-2:] == ["message_delta", "message_stop"]
    assert streamed.stop_reason == whole.stop_reason
    assert [_plain(b) for b in streamed.content] == [_plain(b) for b in whole.content]
    assert (
        streamed.usage.output_tokens == whole.usage.output_tokens == len(ANSWERS[name].encode()) + 1
    )


def _plain(block) -> dict:
    made = block.model_dump(exclude={"id", "citations", "parsed_output"}, exclude_none=True)
    return {key: value for key, value in made.items() if key not in ("incomplete", "partial_json")}


def test_blocks_have_their_kinds_in_order():
    with scripted(ANSWERS["everything"]) as server:
        answer = ask(server, tools=[BASH], thinking={"type": "adaptive"})
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert answer.content[0].thinking == "Plan."
    assert answer.content[1].text == "Looking."
    assert answer.content[2].input == {"command": "ls -la"}
    assert answer.content[2].id != answer.content[3].id
    assert answer.stop_reason == "tool_use"
    assert answer.model == MODEL
    assert answer.role == "assistant"


def test_each_event_follows_the_protocol_to_the_letter():
    with scripted(ANSWERS["text and call"]) as server:
        body = {"messages": HI, "max_tokens": 200, "stream": True, "tools": [BASH]}
        text = httpx.post(f"{server.url}/v1/messages", json=body).text
    events = [
        dict(line.split(": ", 1) for line in e.splitlines()) for e in text.strip().split("\n\n")
    ]
    data = [json.loads(event["data"]) for event in events]
    assert [event["event"] for event in events] == [d["type"] for d in data]
    open_index = None
    for d in data:
        match d["type"]:
            case "content_block_start":
                assert open_index is None
                open_index = d["index"]
            case "content_block_delta":
                assert d["index"] == open_index
            case "content_block_stop":
                assert d["index"] == open_index
                open_index = None
    starts = [d["content_block"]["type"] for d in data if d["type"] == "content_block_start"]
    assert starts == ["text", "tool_use"]
    partial = [d["delta"]["partial_json"] for d in data if "partial_json" in d.get("delta", {})]
    assert "".join(partial) == '{"command": "ls -la"}'
    assert len(partial) > 1


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_that_must_not_be_shown_comes_back_sealed(stream):
    thinking = {"type": "adaptive", "display": "omitted"}
    with scripted("<think>\nA secret plan.\n</think>\n\nYes.") as server:
        if stream:
            with (
                client(server) as asking,
                asking.messages.stream(
                    model=MODEL, max_tokens=100, messages=HI, thinking=thinking
                ) as events,
            ):
                answer = events.get_final_message()
        else:
            answer = ask(server, thinking=thinking)
        block = answer.content[0]
        assert (block.type, block.thinking) == ("thinking", "")
        assert "secret" not in block.signature
        again = [*HI, {"role": "assistant", "content": answer.content}, *HI]
        ask(server, again, thinking=thinking)
        assert "<think>\nA secret plan.\n</think>\n\nYes." in heard(server)


def test_usage_counts_the_prompt_whole_at_start_and_end():
    with scripted("Yes.") as server:
        ask(server, [{"role": "user", "content": "word " * 200}])
        events = events_of(server, [{"role": "user", "content": "word " * 200 + "more"}])
        num_prompt_tokens = server.engine.heard[-1].num_prompt_tokens
    for usage in (events[0].message.usage, events[-2].usage):
        assert usage.cache_read_input_tokens >= 900
        assert (
            usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
            == num_prompt_tokens
        )
    assert events[-2].usage.output_tokens == len("Yes.") + 1


def test_max_tokens_ends_the_answer_and_one_that_does_not_fit_is_lowered():
    with running(FakeEngine(script="x" * 500)) as server:
        assert ask(server, max_tokens=5).stop_reason == "max_tokens"
        with client(server) as asking:
            raw = asking.messages.with_raw_response.create(
                model=MODEL, messages=HI, max_tokens=1_000_000
            )
        assert raw.parse().stop_reason == "max_tokens"
        assert int(raw.headers["x-tokenlight-max-tokens"]) < 200


def test_a_stop_sequence_is_named():
    with scripted("one STOP two") as server:
        answer = ask(server, stop_sequences=["never", "STOP"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "STOP")
    assert answer.content[0].text == "one "


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_max_tokens_cuts_is_max_tokens_and_marked(stream):
    with scripted(call("bash", '{"command": "echo a long line"}')) as server:
        if stream:
            events = events_of(server, tools=[BASH], max_tokens=60)
            assert events[-2].delta.stop_reason == "max_tokens"
            partial = [
                e.delta.partial_json
                for e in events
                if e.type == "content_block_delta" and e.delta.type == "input_json_delta"
            ]
            assert "".join(partial) == '{"command": "echo '
        else:
            answer = ask(server, tools=[BASH], max_tokens=60)
            assert answer.stop_reason == "max_tokens"
            assert answer.content[0].model_extra["incomplete"] is True
            assert answer.content[0].input == {}


def test_one_call_is_the_most_where_parallel_use_is_off():
    with scripted(ANSWERS["two calls"]) as server:
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        answer = ask(server, tools=[BASH], tool_choice=choice)
        streamed = events_of(server, tools=[BASH], tool_choice=choice)
        assert all(seen.was_aborted for seen in server.engine.seen)
    assert [block.input for block in answer.content] == [{"command": "ls -la"}]
    assert answer.stop_reason == "tool_use"
    assert [e.index for e in streamed if e.type == "content_block_start"] == [0]


def test_a_call_that_cannot_be_read_is_shown_and_counted():
    with scripted('<tool_call>\n{"no": "call"}\n</tool_call>') as server:
        answer = ask(server, tools=[BASH])
        metrics = httpx.get(f"{server.url}/metrics").text
    assert '{"no": "call"}' in answer.content[0].text
    assert 'tokenlight_parse_errors_total{model_name="tiny",parser="hermes"' in metrics


def test_tool_choice_none_makes_no_call_and_keeps_the_prompt():
    with scripted(LS) as server:
        ask(server, tools=[BASH])
        answer = ask(server, tools=[BASH], tool_choice={"type": "none"})
        with_tools, with_none = server.engine.heard
    assert [block.type for block in answer.content] == ["text"]
    assert answer.stop_reason == "end_turn"
    assert with_tools.text == with_none.text


@pytest.mark.parametrize("has_tools", [False, True])
def test_count_tokens_is_the_prompt_that_the_same_request_has(has_tools):
    fields = {"system": "You help.", "messages": [*HI, {"role": "system", "content": "Late."}]}
    if has_tools:
        fields |= {"tools": [BASH], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    with scripted("Yes.") as server:
        with client(server) as asking:
            counted = asking.messages.count_tokens(model=MODEL, **fields).input_tokens
        assert not server.engine.heard
        post(server, **fields)
        assert server.engine.heard[-1].num_prompt_tokens == counted


def test_a_prompt_that_does_not_fit_is_told_in_anthropics_words():
    with running() as server, pytest.raises(anthropic.BadRequestError) as refused:
        ask(server, [{"role": "user", "content": "x" * 500}])
    error = refused.value.body["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"] == "prompt is too long: 554 tokens > 199 maximum"
    assert refused.value.request_id.startswith("req_")


@pytest.mark.parametrize(
    ("fields", "kind", "error"),
    [
        ({"model": "gpt-5"}, anthropic.NotFoundError, "not_found_error"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error"),
        ({"extra_body": {"temperature": 3}}, anthropic.BadRequestError, "invalid_request_error"),
        ({"tools": [{"name": "x"}]}, anthropic.BadRequestError, "invalid_request_error"),
        (
            {"tool_choice": {"type": "tool", "name": "nope"}, "tools": [BASH]},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
    ],
)
def test_refusals_are_in_anthropics_shape(fields, kind, error):
    fields = {"model": MODEL, "messages": HI, "max_tokens": 10, **fields}
    with running() as server, client(server) as asking, pytest.raises(kind) as refused:
        asking.messages.create(**fields)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == error
    assert refused.value.body["request_id"]


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_either_header_carries_the_key(header):
    with running(api_key="k") as server:
        value = {"x-api-key": "k", "authorization": "Bearer k"}[header]
        url, body = f"{server.url}/v1/messages", {"messages": HI, "max_tokens": 5}
        assert httpx.post(url, json=body, headers={header: value}).status_code == 200
        refused = httpx.post(url, json=body, headers={header: value + "x"})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"


def test_a_failure_in_mid_stream_is_an_error_event_and_the_end():
    with running(FakeEngine(fail_after=3)) as server:
        answer = post(server, stream=True)
    assert answer.status_code == 200
    *_, last = answer.text.strip().split("\n\n")
    kind, data = last.split("\n")
    assert kind == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["type"] == "overloaded_error"


def test_a_failure_before_the_first_token_has_a_status():
    with running(FakeEngine(fail_after=0)) as server:
        answer = post(server, stream=True)
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "overloaded_error"


def test_no_tokens_at_all_are_one_token():
    """A client that warms the cache asks for none."""
    with running(FakeEngine()) as server:
        answer = httpx.post(
            f"{server.url}/v1/messages",
            json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 0},
        )
        assert server.engine.seen[-1].max_new_tokens == 1
    assert answer.json()["stop_reason"] == "max_tokens"
