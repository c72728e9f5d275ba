# SPDX-License-Identifier: Apache-2.0
"""Parameters beyond OpenAI's, as vLLM's users send them."""

import httpx
import pytest

from tests.server.fake_engine import EOS, FakeEngine
from tests.server.running import MODEL, running
from tokenlight import wire

HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


@pytest.fixture
def server():
    with running(FakeEngine(script="one two", tokens_per_delta=2)) as made:
        yield made


def post(server, path, **fields):
    body = {"messages": HI} if path == CHAT else {"prompt": "hi"}
    answer = httpx.post(server.url + path, json={**body, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def stream(server, path, **fields):
    """Every chunk of a stream, through the official client's parser."""
    client = server.client()
    if path == CHAT:
        create, body = client.chat.completions.create, {"messages": HI}
    else:
        create, body = client.completions.create, {"prompt": "hi"}
    asked = {"stream_options": fields.pop("stream_options", None)} if fields else {}
    return [
        chunk.model_dump()
        for chunk in create(model=MODEL, stream=True, **body, **asked, extra_body=fields)
    ]


def test_priority_reaches_the_engine(server):
    post(server, CHAT, priority=-3)
    post(server, CHAT)
    assert [seen.priority for seen in server.engine.seen] == [-3, 0]


def test_stop_token_ids_join_the_models_own(server):
    post(server, CHAT, stop_token_ids=[7, 9])
    assert server.engine.seen[0].stop_token_ids == (EOS, 7, 9)


def test_ignore_eos_leaves_the_models_own_out(server):
    post(server, CHAT, ignore_eos=True, stop_token_ids=[7])
    post(server, CHAT, ignore_eos=True)
    assert [s.stop_token_ids for s in server.engine.seen] == [(7,), ()]


@pytest.mark.parametrize("keeps", [True, False])
def test_the_stop_text_can_be_kept(server, keeps):
    asked = {"stop": "tw", "include_stop_str_in_output": keeps}
    text = post(server, COMPLETION, **asked)["choices"][0]["text"]
    assert text == ("one tw" if keeps else "one ")
    chunks = stream(server, COMPLETION, **asked)
    assert "".join(c["choices"][0]["text"] for c in chunks) == text


@pytest.mark.parametrize("skips", [True, False, None])
def test_special_tokens_are_shown_on_request(skips):
    with running(FakeEngine(script="a")) as server:
        tokenizer = server.services.tokenizer
        tokenizer.is_special = lambda token_id: token_id == ord("a")
        text = post(server, COMPLETION, skip_special_tokens=skips)["choices"][0]["text"]
    assert text == ("a" if skips is False else "")


@pytest.mark.parametrize("echo", [True, False])
def test_echo_puts_the_prompt_first(server, echo):
    asked = {"prompt": ["ab", [99, 100]], "echo": echo, "n": 2}
    body = httpx.post(server.url + COMPLETION, json=asked).json()
    wanted = ["abone two", "abone two", "cdone two", "cdone two"] if echo else ["one two"] * 4
    assert [c["text"] for c in body["choices"]] == wanted
    chunks = server.client().completions.create(
        model=MODEL, prompt=["ab", [99, 100]], echo=echo, n=2, stream=True
    )
    texts = [""] * 4
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == wanted


def test_token_ids_of_an_answer(server):
    chat = post(server, CHAT, return_token_ids=True)
    assert bytes(chat["prompt_token_ids"]) == b"user: hi\nassistant:"
    assert bytes(chat["choices"][0]["token_ids"]) == b"one two"
    completion = post(server, COMPLETION, return_token_ids=True)
    assert bytes(completion["choices"][0]["prompt_token_ids"]) == b"hi"
    assert bytes(completion["choices"][0]["token_ids"]) == b"one two"


def test_token_ids_of_a_stream_come_with_their_text(server):
    chunks = stream(server, CHAT, return_token_ids=True, stop="two")
    assert bytes(chunks[0]["prompt_token_ids"]) == b"user: hi\nassistant:"
    assert not any(c.get("prompt_token_ids") for c in chunks[1:])
    ids = [i for c in chunks for i in c["choices"][0].get("token_ids") or []]
    assert bytes(ids) == b"one two"
    completion = stream(server, COMPLETION, return_token_ids=True)
    ids = [i for c in completion for i in c["choices"][0].get("token_ids") or []]
    assert bytes(ids) == b"one two"
    assert bytes(completion[0]["choices"][0]["prompt_token_ids"]) == b"hi"


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
def test_token_ids_are_left_out_unless_asked_for(server, path):
    assert "token_ids" not in str(post(server, path))


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
def test_continuous_usage_counts_up_in_every_chunk(server, path):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, path, stream_options=options)
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert counts[-1] == len("one two") + 1
    assert chunks[-1]["choices"] == []
    only = stream(server, path, stream_options={"continuous_usage_stats": True})
    assert all(c.get("usage") is None for c in only)


def test_penalties_biases_and_min_tokens_reach_the_engine(server):
    post(
        server,
        CHAT,
        repetition_penalty=1.2,
        frequency_penalty=-0.5,
        presence_penalty=1,
        logit_bias={"7": -100, "12": 2.5},
        min_tokens=3,
    )
    sampling = server.engine.seen[0].sampling
    assert sampling.repetition_penalty == 1.2
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (-0.5, 1.0)
    assert sampling.logit_bias == {7: -100.0, 12: 2.5}
    assert sampling.min_tokens == 3


def test_by_default_nothing_is_shaped_or_told(server):
    post(server, CHAT)
    assert server.engine.seen[0].sampling == wire.SamplingParams(
        seed=server.engine.seen[0].sampling.seed
    )
    assert post(server, CHAT)["choices"][0]["logprobs"] is None


def test_log_probabilities_of_a_chat(server):
    answer = server.client().chat.completions.create(
        model=MODEL, messages=HI, logprobs=True, top_logprobs=2
    )
    content = answer.choices[0].logprobs.content
    assert "".join(c.token for c in content) == "one two"
    assert [c.logprob for c in content] == [-i / 100 for i in b"one two"]
    assert content[0].bytes == [ord("o")]
    assert [(t.token, t.logprob, t.bytes) for t in content[0].top_logprobs] == [
        ("A", -0.65, [65]),
        ("B", -0.66, [66]),
    ]


@pytest.mark.parametrize("stop", [None, "two", "o"])
def test_a_streamed_chat_tells_the_same_log_probabilities(server, stop):
    asked = {"logprobs": True, "stop": stop}
    whole = post(server, CHAT, **asked)["choices"][0]["logprobs"]["content"]
    chunks = stream(server, CHAT, **asked)
    told = [c["choices"][0]["logprobs"] for c in chunks]
    streamed = [entry for one in told if one for entry in one["content"]]
    assert streamed == whole
    assert all(entry["top_logprobs"] == [] for entry in whole)


def test_log_probabilities_of_a_completion(server):
    told = server.client().completions.create(model=MODEL, prompt="hi", logprobs=1)
    logprobs = told.choices[0].logprobs
    assert logprobs.tokens == list("one two")
    assert logprobs.token_logprobs == [-i / 100 for i in b"one two"]
    assert logprobs.text_offset == list(range(7))
    assert logprobs.top_logprobs[0] == {"A": -0.65, "o": -1.11}
    offsets = [
        offset
        for chunk in stream(server, COMPLETION, logprobs=0)
        for offset in (chunk["choices"][0]["logprobs"] or {}).get("text_offset", [])
    ]
    assert offsets == list(range(7))


def test_what_cannot_be_has_a_log_probability_that_json_can_say():
    with running(FakeEngine(script="!")) as server:
        body = post(server, CHAT, logprobs=True)
    assert body["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


def test_a_cache_salt_reaches_the_engine(server):
    post(server, CHAT, cache_salt="tenant 7")
    post(server, CHAT)
    assert [seen.cache_salt for seen in server.engine.seen] == ["tenant 7", ""]
