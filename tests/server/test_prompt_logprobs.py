# SPDX-License-Identifier: Apache-2.0
"""What is told of prompts, in the shapes of OpenAI (echo) and of vLLM (prompt_logprobs)."""

import httpx
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running

A = {"logprob": -0.65, "rank": 1, "decoded_token": "A"}
B = {"logprob": -0.66, "rank": 2, "decoded_token": "B"}


@pytest.fixture
def server():
    with running(FakeEngine(script="yes")) as made:
        yield made


def complete(server, **fields):
    asked = {"model": MODEL, "prompt": "hi!x", **fields}
    return server.client().completions.create(**asked)


def post(server, path, **fields):
    return httpx.post(f"{server.url}/v1/{path}", json=fields).raise_for_status().json()


def test_echo_with_logprobs_tells_prompt_and_answer(server):
    choice = complete(server, echo=True, logprobs=1).choices[0]
    told = choice.logprobs
    assert choice.text == "hi!xyes"
    assert told.tokens == list("hi!xyes")
    assert told.token_logprobs == [None, -1.05, -9999.0, -1.2, -1.21, -1.01, -1.15]
    assert told.text_offset == list(range(7))
    assert told.top_logprobs[:2] == [None, {"A": -0.65, "i": -1.05}]
    assert told.top_logprobs[-1] == {"A": -0.65, "s": -1.15}
    assert "prompt_logprobs" not in choice.model_extra


def test_a_stream_tells_what_a_whole_answer_tells(server):
    asked = {"prompt": ["hi!x", "b"], "n": 2, "echo": True, "logprobs": 0}
    for whole in complete(server, **asked).choices:
        chunks = [
            c.choices[0].logprobs
            for c in complete(server, stream=True, **asked)
            if c.choices[0].index == whole.index and c.choices[0].logprobs
        ]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            streamed = [each for chunk in chunks for each in getattr(chunk, name)]
            assert streamed == getattr(whole.logprobs, name)
    assert whole.logprobs.tokens == list("byes")


def test_hidden_tokens_take_no_place_in_the_text(server):
    told = complete(server, prompt=[104, 256, 105], echo=True, logprobs=0).choices[0]
    assert told.text == "hiyes"
    assert told.logprobs.text_offset == [0, 1, 1, 2, 3, 4]


def test_echo_alone_asks_the_engine_for_nothing(server):
    complete(server, echo=True)
    complete(server, logprobs=2)
    assert [s.sampling.num_prompt_logprobs for s in server.engine.seen] == [None, None]


def test_a_completion_has_them_in_each_choice(server):
    body = post(server, "completions", prompt=["Ai", "B"], n=2, prompt_logprobs=2)
    i = {"logprob": -1.05, "rank": 105, "decoded_token": "i"}
    assert [c["prompt_logprobs"] for c in body["choices"]] == [
        [None, {"105": i, "65": A, "66": B}],
        [None, {"105": i, "65": A, "66": B}],
        [None],
        [None],
    ]
    assert all(c["logprobs"] is None for c in body["choices"])


def test_a_likely_token_is_told_once(server):
    body = post(server, "completions", prompt="xA", prompt_logprobs=1)
    told = body["choices"][0]["prompt_logprobs"][1]
    assert told == {"65": {"logprob": -0.65, "rank": 65, "decoded_token": "A"}}


@pytest.mark.parametrize(("echoed", "asked"), [(3, 1), (1, 3)])
def test_echo_and_prompt_logprobs_each_have_their_number(server, echoed, asked):
    fields = {"prompt": "xy", "echo": True, "logprobs": echoed, "prompt_logprobs": asked}
    choice = post(server, "completions", **fields)["choices"][0]
    assert server.engine.seen[0].sampling.num_prompt_logprobs == 3
    assert len(choice["logprobs"]["top_logprobs"][1]) == echoed + 1
    assert len(choice["prompt_logprobs"][1]) == asked + 1


def test_a_chat_has_them_once(server):
    hi = [{"role": "user", "content": "hi"}]
    body = post(server, "chat/completions", messages=hi, n=2, prompt_logprobs=0)
    told = body["prompt_logprobs"]
    assert told[0] is None
    text = "".join(entry["decoded_token"] for one in told[1:] for entry in one.values())
    assert text == "ser: hi\nassistant:"
    assert "prompt_logprobs" not in post(server, "chat/completions", messages=hi)
