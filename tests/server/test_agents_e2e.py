# SPDX-License-Identifier: Apache-2.0
"""The agents' protocols on the real server and the default model, with the official clients."""

import json

import anthropic
import httpx
import pytest

from tests.expectations.agents import claude_code, codex, say
from tests.recorded.requests import Recorded, every_recorded
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 24},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
NAME = "SmolLM2-135M-Instruct.Q4_1"


@pytest.fixture(scope="module")
def server(default_model_path, tmp_path_factory):
    with serving(str(default_model_path), log=tmp_path_factory.mktemp("log") / "log") as made:
        yield made


def is_weather(arguments: object) -> bool:
    return (
        isinstance(arguments, dict)
        and set(arguments) == {"city", "unit", "days"}
        and isinstance(arguments["city"], str)
        and len(arguments["city"]) <= 24
        and arguments["unit"] in ("celsius", "fahrenheit")
        and arguments["days"] in range(1, 8)
    )


def test_a_forced_call_follows_its_schema_twenty_times_of_twenty(server: Serving):
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
    for seed in range(20):
        answer = server.client().chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": f"How is the weather in city {seed}?"}],
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=120,
            seed=seed,
        )
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert is_weather(json.loads(choice.message.tool_calls[0].function.arguments))


def test_a_shape_is_kept_by_responses(server: Serving):
    formatted = {"type": "json_schema", "name": "w", "schema": WEATHER}
    answer = server.client().responses.create(
        model=NAME, input="Weather?", text={"format": formatted}, extra_body={"seed": 1}
    )
    assert is_weather(json.loads(answer.output_text))


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "get_weather"}, {"type": "any"}])
def test_a_forced_call_of_messages_is_one_call_and_then_the_end(server: Serving, choice):
    """Parallel calls are allowed; this model, never taught to call, would not stop calling."""
    with anthropic.Anthropic(base_url=server.url, api_key="x") as client:
        for seed in range(10):
            message = client.messages.create(
                model=NAME,
                max_tokens=120,
                messages=[say("Weather?")],
                tools=[{"name": "get_weather", "input_schema": WEATHER}],
                tool_choice=choice,
                extra_body={"seed": seed},
            )
            assert message.stop_reason == "tool_use"
            (call,) = message.content
            assert is_weather(call.input)


def test_every_endpoint_answers_the_official_clients(server: Serving):
    openai, hi = server.client(), [say("hi")]
    assert [m.id for m in openai.models.list()] == [NAME]
    greedy = {"model": NAME, "extra_body": {"temperature": 0}}
    asked = {**greedy, "max_tokens": 12, "messages": hi}
    (whole,) = openai.chat.completions.create(**asked).choices
    assert whole.message.content
    chunks = list(openai.chat.completions.create(stream=True, **asked))
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == whole.message.content
    items = {**greedy, "input": "hi", "max_output_tokens": 12}
    assert openai.responses.create(**items).output_text
    with openai.responses.stream(**items) as stream:
        *_, last = stream
    stored = openai.responses.retrieve(last.response.id)
    assert stored.output_text == last.response.output_text
    with anthropic.Anthropic(base_url=server.url, auth_token="x") as client:
        assert client.messages.create(**asked).content[0].text
        with client.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        counted = client.messages.count_tokens(model=NAME, messages=hi).input_tokens
        assert [m.id for m in client.models.list()] == [NAME]
    assert counted == final.usage.input_tokens + final.usage.cache_read_input_tokens


def test_an_agents_request_is_answered_or_is_a_truthful_overflow(server: Serving):
    """Agents' requests are answered, or told in their client's words that they do not fit."""
    for text in ("go", "word " * 20_000):
        user = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        messages = claude_code([say(text)], model=NAME, max_tokens=8)
        items = codex([user], model=NAME, max_output_tokens=8)
        first = httpx.post(f"{server.url}/v1/messages", json=messages, timeout=120)
        second = httpx.post(f"{server.url}/v1/responses", json=items, timeout=120)
        if text == "go":
            assert (first.status_code, second.status_code) == (200, 200)
        else:
            assert (first.status_code, second.status_code) == (400, 400)
            assert first.json()["error"]["message"].startswith("prompt is too long: ")
            assert second.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "asked", every_recorded(), ids=lambda asked: f"{asked.client} {asked.path}"
)
def test_every_recorded_request_is_answered_or_does_not_fit(server: Serving, asked: Recorded):
    """Each client is told in its own words that its prompt is too long for this model."""
    most = {"/v1/responses": "max_output_tokens"}.get(asked.path, "max_tokens")
    body = {**asked.body, "model": NAME, most: 4}
    answer = httpx.post(server.url + asked.path, json=body, headers=asked.headers, timeout=120)
    if answer.status_code == 200:
        is_failed = "response.failed" in answer.text or "event: error" in answer.text
        assert not is_failed or "context_length_exceeded" in answer.text
        return
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith("prompt is too long: ") or (
        error["code"] == "context_length_exceeded"
    )


def test_a_second_turn_finds_the_first_in_the_cache(server: Serving):
    def usage(messages: list[dict]) -> dict:
        body = claude_code(messages, model=NAME, max_tokens=16)
        return httpx.post(f"{server.url}/v1/messages", json=body, timeout=120).json()

    first = usage([say("Say something.")])
    second = usage(
        [
            say("Say something."),
            {"role": "assistant", "content": first["content"]},
            say("And more."),
        ]
    )["usage"]
    prompt_tokens = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    assert second["cache_read_input_tokens"] >= prompt_tokens - 32
