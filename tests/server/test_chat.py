# SPDX-License-Identifier: Apache-2.0
"""/v1/chat/completions as the official OpenAI client sees it."""

import json

import httpx
import pytest
from openai import BadRequestError, InternalServerError, NotFoundError

from tests.server.fake_engine import CONTEXT_TOKENS, EOS, FakeEngine
from tests.server.running import MODEL, running

HI = [{"role": "user", "content": "hi"}]
PROMPT = "user: hi\nassistant:"


@pytest.fixture
def server():
    with running(FakeEngine(script="Grüße, 世界!", cached_tokens=5)) as made:
        yield made


def ask(server, messages=HI, **fields):
    return server.client().chat.completions.create(model=MODEL, messages=messages, **fields)


def test_an_answer_has_text_finish_reason_and_usage(server):
    answer = ask(server)
    assert answer.choices[0].message.content == "Grüße, 世界!"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    num_sampled = len("Grüße, 世界!".encode()) + 1  # bytes and the end of text
    assert answer.usage.prompt_tokens == len(PROMPT)
    assert answer.usage.completion_tokens == num_sampled
    assert answer.usage.total_tokens == len(PROMPT) + num_sampled
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")


def test_the_prompt_is_the_rendered_template(server):
    ask(
        server,
        [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": None},
            {"role": "user", "content": ""},
        ],
    )
    sent = bytes(server.engine.seen[0].prompt_token_ids).decode()
    assert sent == "system: Be brief.\nuser: a\nb\nassistant: \nuser: \nassistant:"
    assert server.engine.seen[0].stop_token_ids == (EOS,)


def test_half_a_surrogate_pair_is_a_replacement_character(server):
    """A client cut a text within an emoji: its session goes on, whatever the text is of."""
    history = [
        {"role": "user", "content": "cut \ud83d"},
        {"role": "assistant", "tool_calls": [
            {"id": "1", "function": {"name": "f", "arguments": r'{"a": "\ud83d \ud83d\ude00"}'}}
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "\ude00 whole \U0001f600"},
    ]  # fmt: skip
    for fields in ({}, {"guided_json": r'{"enum": ["\ud83d"]}'}):
        body = json.dumps({"messages": history, **fields})
        answer = httpx.post(f"{server.url}/v1/chat/completions", content=body)
        assert answer.status_code == 200, answer.text
    sent = bytes(server.engine.seen[0].prompt_token_ids).decode()
    assert "cut \ufffd" in sent
    assert "\ufffd whole \U0001f600" in sent


def test_a_long_prompt_tokenised_on_a_thread_is_the_same_prompt(server):
    words = "word " * 2000
    with pytest.raises(BadRequestError) as refused:
        ask(server, [{"role": "user", "content": words}])
    assert refused.value.code == "context_length_exceeded"
    assert str(len(f"user: {words}\nassistant:")) in refused.value.message


def test_template_variables_reach_the_template(server):
    extra = {"chat_template_kwargs": {"mood": "calm"}, "add_generation_prompt": False}
    ask(server, extra_body=extra)
    assert bytes(server.engine.seen[0].prompt_token_ids) == b"user: hi\nmood=calm\n"


def test_a_stream_gives_the_same_text_and_usage(server):
    whole = ask(server)
    chunks = list(ask(server, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage == whole.usage
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


def test_a_stream_without_include_usage_has_no_usage(server):
    lines = (
        httpx.post(f"{server.url}/v1/chat/completions", json={"messages": HI, "stream": True})
        .text.strip()
        .split("\n\n")
    )
    assert lines[-1] == "data: [DONE]"
    assert not any("usage" in line for line in lines)


def test_no_chunk_ends_within_a_character(server):
    chunks = ask(server, stream=True)
    pieces = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert "".join(pieces) == "Grüße, 世界!"
    assert "�" not in "".join(pieces)


@pytest.mark.parametrize("stream", [False, True])
def test_n_choices_differ_by_their_seed(stream):
    engine = FakeEngine(script=lambda seen: f"seed {seen.sampling.seed}", cached_tokens=3)
    with running(engine) as server:
        fields = {"n": 3, "seed": 40, "stream": stream}
        if stream:
            texts = ["", "", ""]
            for chunk in ask(server, **fields):
                texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        else:
            answer = ask(server, **fields)
            texts = [c.message.content for c in answer.choices]
            assert [c.index for c in answer.choices] == [0, 1, 2]
            assert answer.usage.prompt_tokens == len(PROMPT)
            assert answer.usage.completion_tokens == 3 * len("seed 40.")
            assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert texts == ["seed 40", "seed 41", "seed 42"]
    assert len({seen.request_id for seen in engine.seen}) == 3


def test_sampling_parameters_reach_the_engine(server):
    ask(
        server,
        temperature=0.5,
        top_p=0.9,
        seed=-1,
        max_completion_tokens=7,
        max_tokens=9,
        extra_body={"top_k": 40, "min_p": 0.05},
    )
    seen = server.engine.seen[0]
    assert (seen.sampling.temperature, seen.sampling.top_p) == (0.5, 0.9)
    assert (seen.sampling.top_k, seen.sampling.min_p) == (40, 0.05)
    assert seen.sampling.seed == 2**63 - 1
    assert seen.max_new_tokens == 7


def test_defaults_are_those_of_the_protocol(server):
    ask(server)
    ask(server)
    first, second = server.engine.seen
    assert (first.sampling.temperature, first.sampling.top_p) == (1.0, 1.0)
    assert (first.sampling.top_k, first.sampling.min_p) == (0, 0.0)
    assert first.sampling.seed != second.sampling.seed
    assert first.max_new_tokens == CONTEXT_TOKENS - len(PROMPT)


def test_a_temperature_too_small_to_divide_by_is_greedy(server):
    ask(server, temperature=1e-9)
    assert server.engine.seen[0].sampling.temperature == 0.0


@pytest.mark.parametrize("stream", [False, True])
def test_max_tokens_that_does_not_fit_is_lowered_and_reported(stream):
    room = CONTEXT_TOKENS - len(PROMPT)
    with running(FakeEngine(script="x" * 500)) as server:
        create = server.client().chat.completions.with_raw_response.create
        raw = create(model=MODEL, messages=HI, max_tokens=10_000, stream=stream)
        assert raw.headers["x-tokenlight-max-tokens"] == str(room)
        parsed = raw.parse()
        last = list(parsed)[-1] if stream else parsed
        assert last.choices[0].finish_reason == "length"


def test_max_tokens_that_fits_is_not_reported(server):
    create = server.client().chat.completions.with_raw_response.create
    raw = create(model=MODEL, messages=HI, max_tokens=5)
    assert "x-tokenlight-max-tokens" not in raw.headers
    assert raw.parse().choices[0].finish_reason == "length"
    assert raw.parse().usage.completion_tokens == 5


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens_per_delta", [1, 3, 100])
def test_a_stop_string_ends_the_text_before_it_however_tokens_arrive(stream, tokens_per_delta):
    engine = FakeEngine(script="one two STOP three four", tokens_per_delta=tokens_per_delta)
    with running(engine) as server:
        fields = {"stop": ["never", "STOP"], "stream": stream}
        if stream:
            chunks = list(ask(server, stream_options={"include_usage": True}, **fields))
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            finish, usage = chunks[-2].choices[0].finish_reason, chunks[-1].usage
        else:
            answer = ask(server, **fields)
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
            usage = answer.usage
    assert (text, finish) == ("one two ", "stop")
    assert usage.completion_tokens == len("one two STOP")
    assert engine.seen[0].was_aborted == (tokens_per_delta < 100)


def test_half_a_stop_string_at_the_end_is_text():
    with running(FakeEngine(script="this is the ST")) as server:
        assert ask(server, stop="STOP").choices[0].message.content == "this is the ST"


def test_the_engine_dying_midway_is_503_without_a_stream():
    with running(FakeEngine(fail_after=3)) as server:
        with pytest.raises(InternalServerError) as failed:
            ask(server)
        assert (failed.value.status_code, failed.value.code) == (503, "engine_dead")


def test_another_model_is_not_found(server):
    with pytest.raises(NotFoundError) as refused:
        server.client().chat.completions.create(model="gpt-5", messages=HI)
    assert refused.value.code == "model_not_found"


def test_more_requests_than_the_engine_holds_are_told_to_come_back():
    engine = FakeEngine(script="x" * 100, max_unfinished=1, token_s=0.2)
    with running(engine) as server:
        stream = ask(server, stream=True)
        next(iter(stream))
        answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": HI})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        stream.close()


def test_the_async_client_streams_too(server):
    import asyncio

    from openai import AsyncOpenAI

    async def stream() -> str:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
            chunks = await client.chat.completions.create(model=MODEL, messages=HI, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in chunks])

    assert asyncio.run(stream()) == "Grüße, 世界!"
