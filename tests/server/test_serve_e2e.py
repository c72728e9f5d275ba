# SPDX-License-Identifier: Apache-2.0
"""`tokenlight serve` for real: its processes, its signals, a model; driven by the OpenAI client."""

import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from openai import APIError

from tests.models.tiny import write_tiny_llama
from tests.processes import is_running, wait_until
from tests.server.serving import ROOT, Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HI = [{"role": "user", "content": "Tell me something about the sea, the sky and the stones."}]
GREEDY = {"temperature": 0.0}
LONG = 30_000


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with serving(str(model), "--admin-api-key", "admin", log=log) as made:
        yield made


@pytest.fixture
def own_server(tmp_path):
    """For a test that ends it, while it says LONG: half a minute of a fast machine."""
    model = write_tiny_llama(tmp_path / "tiny.gguf", context=32768)
    with serving(str(model), log=tmp_path / "serve.log") as made:
        yield made


def chat(server: Serving, **fields):
    asked = {"messages": HI, "model": "tiny", "max_tokens": 24, **GREEDY, **fields}
    return server.client().chat.completions.create(**asked)


def test_the_model_is_listed_under_its_own_name(server):
    listed = server.client().models.list().data[0]
    assert (listed.id, listed.owned_by, listed.max_model_len) == ("tiny", "tokenlight", 2048)


def test_a_stream_says_what_a_whole_answer_says_and_a_repeat_is_cached(server):
    whole = chat(server)
    chunks = list(chat(server, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    cached = chunks[-1].usage.prompt_tokens_details.cached_tokens
    assert cached >= whole.usage.prompt_tokens - 17
    assert cached % 16 == 0


def test_text_and_its_token_ids_are_the_same_prompt(server):
    complete = server.client().completions.create
    byte_ids = [3 + byte_rank(b) for b in b"xqzw"]
    asked = {"model": "tiny", "max_tokens": 12, **GREEDY}
    by_ids = complete(prompt=byte_ids, **asked)
    assert by_ids.usage.prompt_tokens == 4
    assert complete(prompt="xqzw", **asked).choices[0].text == by_ids.choices[0].text


def byte_rank(byte: int) -> int:
    """Where the tiny tokenizer keeps a byte: after its specials, by value."""
    return byte


def test_choices_with_seeds_repeat_and_differ(server):
    def texts():
        answer = chat(server, n=4, seed=11, temperature=1.0)
        return [c.message.content for c in answer.choices]

    first = texts()
    assert texts() == first
    assert len(set(first)) > 1


def test_a_stop_string_of_the_models_own_words_stops_it(server):
    text = chat(server).choices[0].message.content
    stop = text[5:9]
    stopped = chat(server, stop=stop)
    assert stopped.choices[0].message.content == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


def test_max_tokens_is_lowered_to_the_context(server):
    create = server.client().completions.with_raw_response.create
    raw = create(model="tiny", prompt="the sea " * 600, max_tokens=5000, **GREEDY)
    room = 2048 - raw.parse().usage.prompt_tokens
    assert raw.headers["x-tokenlight-max-tokens"] == str(room)


def test_every_block_comes_back_after_disconnects(server):
    num_blocks = server.metric("tokenlight_kv_blocks")
    body = {"messages": HI, "max_tokens": 1500, "stream": True}
    for _ in range(10):
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
    wait_until(lambda: server.metric("vllm:num_requests_running") == 0, 60)
    wait_until(lambda: server.metric("tokenlight_kv_blocks_free") == num_blocks, 60)


def test_sigterm_finishes_what_runs_and_exits_with_0(own_server):
    chunks: list[str] = []
    reasons: list[str | None] = []

    def listen() -> None:
        for chunk in chat(own_server, stream=True, max_tokens=300):
            chunks.append(chunk.choices[0].delta.content or "")
            reasons.append(chunk.choices[0].finish_reason)

    listener = threading.Thread(target=listen)
    listener.start()
    wait_until(lambda: len(chunks) > 3, 30)
    engine_pid = own_server.engine_pid()
    assert own_server.end() == 0
    listener.join()
    assert reasons[-1] in ("stop", "length")
    assert not is_running(engine_pid)


def test_a_second_signal_ends_at_once_and_leaves_no_orphan(own_server):
    engine_pid = own_server.engine_pid()
    body = {"messages": HI, "max_tokens": LONG, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{own_server.url}/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())
        own_server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping" in own_server.said, 60)
        assert own_server.end(signal.SIGINT) == 130
    wait_until(lambda: not is_running(engine_pid), 60)


def test_a_killed_engine_is_503_and_a_non_zero_exit(own_server):
    engine_pid = own_server.engine_pid()
    endless = {"max_tokens": LONG, "extra_body": {"ignore_eos": True}}
    stream = iter(chat(own_server, stream=True, **endless))
    next(stream)
    with httpx.Client(base_url=own_server.url) as client:
        assert client.get("/health").status_code == 200  # the next one only has to be sent
        os.kill(engine_pid, signal.SIGKILL)
        with pytest.raises(APIError) as failed:
            list(stream)
        assert failed.value.code == "engine_dead"
        answer = client.get("/health")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_dead")
    assert own_server.process.wait(60) == 70
    assert not is_running(engine_pid)


def test_an_engine_does_not_outlive_its_killed_server(own_server):
    engine_pid = own_server.engine_pid()
    own_server.process.kill()
    own_server.process.wait()
    wait_until(lambda: not is_running(engine_pid), 60)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"not a model at all" * 100, "GGUF"),
        (b"", "GGUF"),
        (None, "no such file"),
    ],
)
def test_what_is_no_model_is_one_line_and_exit_1(tmp_path, content, wanted):
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    command = [sys.executable, "-m", "tokenlight", "serve", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tokenlight: ")
    assert str(path) in last


def test_chat_starts_a_server_of_its_own_and_ends_it(model):
    done = subprocess.run(
        [sys.executable, "-m", "tokenlight", "chat", str(model), "--temperature", "0"],
        input="hello\n/exit\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "tiny: /reset forgets" in done.stdout
    assert "tokens/s" in done.stdout


def test_the_default_model_knows_a_capital(default_model_path, tmp_path):
    with serving(str(default_model_path), log=tmp_path / "serve.log") as server:
        name = server.client().models.list().data[0].id
        answer = server.client().completions.create(
            model=name, prompt="The capital of France is", max_tokens=5, **GREEDY
        )
        assert "Paris" in answer.choices[0].text
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        told = server.client().chat.completions.create(
            model=name, messages=messages, max_tokens=16, **GREEDY
        )
        assert "Paris" in told.choices[0].message.content


def test_log_probabilities_are_the_models_own_and_greedy_takes_the_likeliest(server):
    content = chat(server, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    for entry in content:
        assert entry.logprob == entry.top_logprobs[0].logprob
        assert entry.logprob < 0
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1 + 1e-5
    hot = chat(server, logprobs=True, temperature=2.0, seed=3).choices[0].logprobs.content
    cold = chat(server, logprobs=True, temperature=0.0).choices[0].logprobs.content
    assert sum(e.logprob for e in hot) < sum(e.logprob for e in cold)


def test_a_bias_a_penalty_and_min_tokens_change_what_is_said(server):
    plain = chat(server, max_tokens=40)
    told = chat(server, extra_body={"return_token_ids": True}).choices[0].token_ids
    biased = chat(server, logit_bias={str(told[0]): -100})
    assert biased.choices[0].message.content != plain.choices[0].message.content
    forced = chat(server, logit_bias={"100": 100}, extra_body={"return_token_ids": True})
    assert set(forced.choices[0].token_ids) == {100}
    fresh = chat(
        server,
        logit_bias={"100": 100, "101": 99},
        presence_penalty=2.0,
        extra_body={"return_token_ids": True},
    )
    assert fresh.choices[0].token_ids[:2] == [100, 101]
    end = {"stop_token_ids": [100]}
    assert chat(server, logit_bias={"100": 100}, extra_body=end).usage.completion_tokens == 1
    held = chat(server, logit_bias={"100": 100}, extra_body={**end, "min_tokens": 6})
    assert held.usage.completion_tokens == 7
    assert held.choices[0].finish_reason == "stop"


def test_a_salt_keeps_prefixes_apart_and_a_reset_forgets_them(server):
    messages = [{"role": "user", "content": "Salt keeps apart what nobody else has asked yet."}]

    def cached(**extra) -> int:
        usage = chat(server, messages=messages, extra_body=extra).usage
        return usage.prompt_tokens_details.cached_tokens

    assert cached() == 0
    assert cached() > 0
    assert cached(cache_salt="mine") == 0
    assert cached(cache_salt="mine") > 0
    answer = httpx.post(f"{server.url}/reset_prefix_cache", headers={"x-api-key": "admin"})
    assert answer.json() == {"reset": True}
    for extra in ({}, {"cache_salt": "mine"}):
        assert cached(**extra) == 0
        assert cached(**extra) > 0
