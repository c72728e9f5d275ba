# SPDX-License-Identifier: Apache-2.0
"""The table of bad inputs in docs/errors.md: each row is sent, and answered as it says."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.server.fake_engine import CONTEXT_TOKENS, FakeEngine
from tests.server.running import running

PAGE = Path(__file__).parents[2] / "docs/errors.md"
MAX_WAITING = 100
BODY_LIMIT = 4 << 20

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


def chat(**fields):
    return CHAT, {"messages": [{"role": "user", "content": "hi"}], **fields}


def message(**fields):
    return CHAT, {"messages": [{"role": "user", "content": "hi", **fields}]}


def completion(**fields):
    return COMPLETION, {"prompt": "hi", **fields}


INPUTS = {
    "no body": (CHAT, b""),
    "not JSON": (CHAT, b"{'messages': 1}"),
    "not UTF-8": (CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}'),
    "half a surrogate pair": (CHAT, rb'{"messages": [{"role": "user", "content": "\ud800"}]}'),
    "two JSON values": (CHAT, b"{} {}"),
    "a list instead of an object": (CHAT, b"[]"),
    "a number that no float holds": (CHAT, b'{"temperature": 1e999}'),
    "a million nested lists": (CHAT, b'{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "no messages": (CHAT, {}),
    "an empty list of messages": chat(messages=[]),
    "messages as a string": chat(messages="hi"),
    "a message without a role": chat(messages=[{"content": "hi"}]),
    "an unknown role": message(role="wizard"),
    "content as a number": message(content=7),
    "an image part": message(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
    "a template variable that is a field": chat(chat_template_kwargs={"messages": []}),
    "a text part without text": message(content=[{"type": "text"}]),
    "a tool call without a function": message(role="assistant", tool_calls=[{"id": "1"}]),
    "temperature as a string": chat(temperature="hot"),
    "temperature below 0": chat(temperature=-0.1),
    "temperature above 2": chat(temperature=2.5),
    "top_p of 0": chat(top_p=0),
    "top_k below -1": chat(top_k=-2),
    "min_p above 1": chat(min_p=1.5),
    "n of 0": chat(n=0),
    "n of 129": chat(n=129),
    "n as a fraction": chat(n=1.5),
    "max_tokens of 0": chat(max_tokens=0),
    "max_tokens as true": chat(max_tokens=True),
    "max_completion_tokens below 1": chat(max_completion_tokens=-1),
    "a seed of 70 bits": chat(seed=1 << 70),
    "an empty stop string": chat(stop=""),
    "a stop token that the model lacks": chat(stop_token_ids=[70_000]),
    "65 stop strings": chat(stop=["x"] * 65),
    "stream_options without stream": chat(stream_options={"include_usage": True}),
    "a tool without a name": chat(tools=[{"type": "function", "function": {}}]),
    "tool_choice of a tool that is not there": chat(
        tool_choice={"type": "function", "function": {"name": "f"}}
    ),
    "a json_schema without its schema": chat(response_format={"type": "json_schema"}),
    "functions": chat(functions=[{"name": "f"}]),
    "audio": chat(audio={"voice": "alloy", "format": "mp3"}),
    "another model": chat(model="gpt-5"),
    "a prompt longer than the context": message(content="x" * CONTEXT_TOKENS),
    "no prompt": (COMPLETION, {}),
    "an empty prompt": completion(prompt=""),
    "an empty list of prompts": completion(prompt=[]),
    "a token id that the model lacks": completion(prompt=[5, 100_000]),
    "token ids among texts": completion(prompt=["hi", 5]),
    "more choices than the server holds": completion(prompt=["hi"] * (MAX_WAITING + 1)),
    "min_tokens above max_tokens": chat(min_tokens=5, max_tokens=4),
    "a penalty above 2": chat(presence_penalty=2.1),
    "a repetition penalty of 0": chat(repetition_penalty=0),
    "a bias of 101": chat(logit_bias={"5": 101}),
    "a bias of a word": chat(logit_bias={"hello": 1}),
    "a bias of a token that the model lacks": chat(logit_bias={"70000": 1}),
    "21 top_logprobs": chat(logprobs=True, top_logprobs=21),
    "top_logprobs without logprobs": chat(top_logprobs=3),
    "21 prompt_logprobs": completion(prompt_logprobs=21),
    "prompt_logprobs below 0": chat(prompt_logprobs=-1),
    "prompt_logprobs of a stream": completion(prompt_logprobs=1, stream=True),
    "prompt_logprobs of a streamed chat": chat(prompt_logprobs=0, stream=True),
    "best_of": completion(best_of=3),
    "suffix": completion(suffix="the end"),
    "a body over the limit": (CHAT, b" " * (BODY_LIMIT + 1)),
    "an unknown path": ("/v1/nothing", {}),
    "a wrong method": ("/v1/models", {}),
}


def rows():
    table = PAGE.read_text().partition("## Bad inputs")[2]
    found = re.findall(r"^\| (.+?) \| (\d+) \| `(\w+)` \| (?:`(.+)`)? *\|$", table, re.MULTILINE)
    return {name: (int(status), code, param or None) for name, status, code, param in found}


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(), max_waiting=MAX_WAITING, max_body_bytes=BODY_LIMIT) as made:
        yield made


def test_the_table_and_the_inputs_here_are_the_same_list():
    assert list(rows()) == list(INPUTS)


@pytest.mark.parametrize("name", INPUTS)
def test_a_bad_input_is_answered_as_the_table_says(server, name):
    path, body = INPUTS[name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(server.url + path, content=data)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == rows()[name]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(error["message"]) > 20
    assert answer.headers["x-request-id"]
    assert not server.engine.seen, "nothing of it may reach the engine"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (chat(temperature=2.5), "'temperature' must be a number from 0 to 2 or null, got 2.5"),
        (chat(n=0), "'n' must be a whole number from 1 to 128 or null, got 0"),
        (message(role="wizard"), "'messages[0].role' must be one of 'assistant', 'developer'"),
        (chat(model="gpt-5"), "this server has 'tiny'"),
        (
            message(content="x" * CONTEXT_TOKENS),
            "the prompt has 217 tokens, but this server's context is 200 tokens",
        ),
        (completion(prompt=[5, 100_000]), "the token id 100000, this model has 0 to 256"),
    ],
)
def test_a_message_has_what_was_sent_and_what_is_allowed(server, body, message):
    path, fields = body
    assert message in httpx.post(server.url + path, json=fields).json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": None, "response_format": {"type": "text"}, "modalities": ["text"]},
        {"functions": None, "function_call": None, "store": False, "best_of": 1},
        {"user": "someone", "metadata": {"a": "b"}, "a_field_of_next_year": 5},
        {"temperature": None, "stop": None, "stream_options": None, "seed": None, "n": None},
    ],
)
def test_a_field_that_asks_for_nothing_is_let_through(server, fields):
    path, body = chat(**fields)
    assert httpx.post(server.url + path, json=body).status_code == 200
    server.engine.seen.clear()
