# SPDX-License-Identifier: Apache-2.0
"""Endpoints beside generation: models, tokens, readiness, aborts."""

import threading

import httpx
import pytest
from openai import NotFoundError

import tokenlight
from tests.processes import wait_until
from tests.server.fake_engine import CONTEXT_TOKENS, FakeEngine
from tests.server.running import MODEL, running
from tokenlight.base.errors import EngineStalled

HI = [{"role": "user", "content": "hi"}]
ADMIN = {"x-api-key": "admin"}


@pytest.fixture
def server():
    with running(FakeEngine(), admin_api_key="admin") as made:
        yield made


def post(server, path, body, **headers):
    answer = httpx.post(server.url + path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_one_model_by_its_name(server):
    one = server.client().models.retrieve(MODEL)
    assert one == server.client().models.list().data[0]
    assert one.max_model_len == CONTEXT_TOKENS
    with pytest.raises(NotFoundError) as refused:
        server.client().models.retrieve("some-org/another")
    assert refused.value.code == "model_not_found"


def test_the_version(server):
    assert httpx.get(f"{server.url}/version").json() == {"version": tokenlight.__version__}


def test_text_and_messages_to_tokens_and_back(server):
    made = post(server, "/tokenize", {"prompt": "héy", "model": MODEL})
    assert made == {"count": 4, "max_model_len": CONTEXT_TOKENS, "tokens": list("héy".encode())}
    assert post(server, "/detokenize", {"tokens": made["tokens"]}) == {"prompt": "héy"}
    made = post(server, "/tokenize", {"messages": HI})
    assert bytes(made["tokens"]) == b"user: hi\nassistant:"
    asked = {"messages": HI, "add_generation_prompt": False, "chat_template_kwargs": {"a": 1}}
    assert bytes(post(server, "/tokenize", asked)["tokens"]) == b"user: hi\na=1\n"


def test_the_texts_of_tokens(server):
    made = post(server, "/tokenize", {"prompt": "hé", "return_token_strs": True})
    assert made["token_strs"] == ["h", "\ufffd", "\ufffd"]


def test_texts_that_are_long_are_the_same_texts(server):
    text = "hé!" * 3000
    made = post(server, "/tokenize", {"prompt": text, "return_token_strs": True})
    assert bytes(made["tokens"]) == text.encode()
    assert made["token_strs"] == ["h", "\ufffd", "\ufffd", "!"] * 3000
    assert post(server, "/detokenize", {"tokens": made["tokens"]}) == {"prompt": text}


def test_tokens_whose_texts_nobody_asked_for_are_not_decoded(server, monkeypatch):
    monkeypatch.setattr(server.services.tokenizer, "decode", None)
    assert post(server, "/tokenize", {"prompt": "hi"})["count"] == 2


def test_a_chat_prompt_has_as_many_tokens_as_tokenize_counts(server):
    count = post(server, "/tokenize", {"messages": HI})["count"]
    answer = server.client().chat.completions.create(model=MODEL, messages=HI)
    assert answer.usage.prompt_tokens == count


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": HI}, "prompt"),
        ("/tokenize", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ("/tokenize", {"prompt": "x", "model": "other"}, "model"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [9999]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
    ],
)
def test_bad_input_is_refused_by_field(server, path, body, param):
    answer = httpx.post(server.url + path, json=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["param"] == param


def test_ready_follows_health_and_room():
    engine = FakeEngine(script="x" * 100, token_s=0.2)
    with running(engine, max_waiting=1) as server:
        ready = f"{server.url}/ready"
        assert httpx.get(ready).json() == {"status": "ready", "unfinished": 0}
        stream = server.client().chat.completions.create(model=MODEL, messages=HI, stream=True)
        next(iter(stream))
        answer = httpx.get(ready)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
        stream.close()
        engine.fault = EngineStalled("no step")
        assert httpx.get(ready).json()["error"]["code"] == "engine_stalled"


@pytest.mark.parametrize("name", ["x-request-id", "answer id"])
def test_an_admin_ends_a_running_request_by_either_name(server, name):
    server.engine.script, server.engine.token_s = "x" * 150, 0.2
    create = server.client(default_headers={"x-request-id": "mine-7"}).chat.completions.create
    stream = create(model=MODEL, messages=HI, n=2, stream=True)
    first = next(iter(stream))
    asked = ["mine-7" if name == "x-request-id" else first.id, "nobody"]
    ended = post(server, "/abort_requests", {"request_ids": asked}, **ADMIN)
    assert ended == {"aborted": asked[:1]}
    reasons = {c.choices[0].index: c.choices[0].finish_reason for c in stream}
    assert reasons == {0: "abort", 1: "abort"}
    assert post(server, "/abort_requests", {"request_ids": asked}, **ADMIN) == {"aborted": []}


def test_an_aborted_answer_keeps_what_was_said(server):
    server.engine.script, server.engine.token_s = "x" * 150, 0.1
    answers: list[dict] = []

    def ask() -> None:
        headers = {"x-request-id": "mine-8"}
        answers.append(post(server, "/v1/completions", {"prompt": "a"}, **headers))

    asker = threading.Thread(target=ask)
    asker.start()
    wait_until(lambda: bool(server.services.running.find("mine-8")), 60)
    num_sampled_tokens = server.engine.num_sampled_tokens
    wait_until(lambda: server.engine.num_sampled_tokens > num_sampled_tokens + 2, 60)
    post(server, "/abort_requests", {"request_ids": ["mine-8"]}, **ADMIN)
    asker.join()
    choice = answers[0]["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert choice["text"].strip("x") == ""
    assert choice["text"]


def test_an_admin_resets_the_prefix_cache(server):
    assert post(server, "/reset_prefix_cache", {}, **ADMIN) == {"reset": True}
    assert server.engine.num_resets == 1
    assert httpx.post(f"{server.url}/reset_prefix_cache").status_code == 401
    assert server.engine.num_resets == 1
