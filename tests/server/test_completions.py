# SPDX-License-Identifier: Apache-2.0
"""/v1/completions as the official OpenAI client sees it."""

import pytest
from openai import BadRequestError

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running


@pytest.fixture
def server():
    engine = FakeEngine(script=lambda seen: bytes(seen.prompt_token_ids).decode() + " and on")
    with running(engine) as made:
        yield made


def complete(server, prompt, **fields):
    return server.client().completions.create(model=MODEL, prompt=prompt, **fields)


@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99], ["abc"], [[97, 98, 99]]])
def test_every_form_of_one_prompt(server, prompt):
    answer = complete(server, prompt)
    assert [c.text for c in answer.choices] == ["abc and on"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == len("abc and on") + 1


def test_prompts_times_n_are_choices_in_order(server):
    answer = complete(server, ["a", "b"], n=2, seed=7)
    assert [(c.index, c.text) for c in answer.choices] == [
        (0, "a and on"),
        (1, "a and on"),
        (2, "b and on"),
        (3, "b and on"),
    ]
    assert answer.usage.prompt_tokens == 2
    assert [s.sampling.seed for s in server.engine.seen] == [7, 8, 7, 8]


def test_text_and_ids_may_be_mixed_as_whole_prompts(server):
    answer = complete(server, ["a", [98]])
    assert [c.text for c in answer.choices] == ["a and on", "b and on"]


def test_a_stream_of_several_prompts_gives_each_its_text(server):
    texts: dict[int, str] = {}
    finished = set()
    for chunk in complete(server, ["a", "b", "c"], stream=True):
        choice = chunk.choices[0]
        texts[choice.index] = texts.get(choice.index, "") + choice.text
        if choice.finish_reason:
            finished.add(choice.index)
    assert texts == {0: "a and on", 1: "b and on", 2: "c and on"}
    assert finished == {0, 1, 2}


def test_the_default_is_16_tokens(server):
    answer = complete(server, "a" * 20)
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_one_failing_choice_fails_the_response_and_stops_the_others():
    engine = FakeEngine(token_s=0.05, error_after=2)
    with running(engine) as server:
        with pytest.raises(Exception, match="NaN") as failed:
            complete(server, ["a", "b", "c"])
        assert failed.value.code == "engine_error"
        assert engine.num_unfinished == 0


def test_the_lowest_limit_of_several_prompts_is_reported(server):
    create = server.client().completions.with_raw_response.create
    raw = create(model=MODEL, prompt=["a" * 50, "b" * 150], max_tokens=190)
    assert raw.headers["x-tokenlight-max-tokens"] == "50"


def test_ids_in_a_prompt_of_texts_name_the_place(server):
    with pytest.raises(BadRequestError) as refused:
        complete(server, ["a", 5])
    assert refused.value.param == "prompt[1]"
