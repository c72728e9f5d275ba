# SPDX-License-Identifier: Apache-2.0
"""LLM in scripts, in threads and inside a running event loop: text in, text out, nothing left."""

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes import is_running, wait_until
from tests.server.serving import Serving, serving
from tokenlight import LLM, SamplingParams
from tokenlight.base.errors import CheckpointNotFound, InvalidRequest, ServerStopping
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import CacheConfig, EngineConfig
from tokenlight.text import Tokenizer

pytestmark = pytest.mark.e2e

GREEDY = SamplingParams(temperature=0)
CONFIG = EngineConfig(cache=CacheConfig(block_tokens=4), num_threads=1)


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> Iterator[LLM]:
    with LLM(model=tiny_path, config=CONFIG) as llm:
        yield llm


@pytest.fixture(scope="module")
def tokenizer(tiny_path: Path) -> Tokenizer:
    return Tokenizer.from_checkpoint(open_checkpoint(tiny_path))


def test_a_text_its_tokens_and_a_list_say_the_same(llm, tokenizer):
    (one,) = llm.generate("the rain in", GREEDY, max_tokens=20)
    ids = tokenizer.encode("the rain in")
    (same,) = llm.generate(ids, GREEDY, max_tokens=20)
    both = llm.generate(["the rain in", "on the"], GREEDY, max_tokens=20)
    mixed = llm.generate([ids, ids], GREEDY, max_tokens=20)
    assert one.text == same.text == both[0].text == mixed[1].text == tokenizer.decode(one.token_ids)
    assert both[1].text != one.text
    assert (one.num_prompt_tokens, len(one.token_ids)) == (len(ids), one.num_sampled_tokens)
    assert (one.finish_reason, one.num_sampled_tokens) == ("length", 20)
    assert llm.generate([]) == []


def test_no_token_is_refused_and_not_taken_for_no_limit(llm):
    with pytest.raises(InvalidRequest, match="max_tokens must be at least 1") as refusal:
        llm.generate("a", GREEDY, max_tokens=0)
    assert refusal.value.param == "max_tokens"


def test_seeds_repeat_and_differ(llm):
    def texts(*seeds: int) -> list[str]:
        sampling = [SamplingParams(temperature=1.5, seed=seed) for seed in seeds]
        return [c.text for c in llm.generate(["a"] * len(seeds), sampling, max_tokens=12)]

    first = texts(1, 2, 3, 1)
    assert first[0] == first[3]
    assert len(set(first)) == 3
    assert texts(3, 1) == [first[2], first[0]]
    with pytest.raises(InvalidRequest, match="2 prompts and 1 sampling"):
        llm.generate(["a", "b"], [GREEDY])


def test_a_stop_string_ends_the_text_before_it(llm):
    (full,) = llm.generate("the rain in", GREEDY, max_tokens=40)
    middle = full.text[len(full.text) // 2 :][:2]
    (cut,) = llm.generate("the rain in", GREEDY, max_tokens=40, stop=[middle, "never here"])
    assert cut.text == full.text[: full.text.index(middle)]
    assert cut.finish_reason == "stop"
    assert cut.token_ids == full.token_ids[: len(cut.token_ids)]
    assert cut.num_sampled_tokens == len(cut.token_ids)


def test_chat_uses_the_models_template_and_its_cache(llm, tokenizer):
    messages = [{"role": "user", "content": "in the rain"}]
    answer = llm.chat(messages, GREEDY, max_tokens=10)
    rendered = "<|im_start|>user\nin the rain<|im_end|>\n<|im_start|>assistant\n"
    (same,) = llm.generate([tokenizer.encode(rendered, add_bos=False)], GREEDY, max_tokens=10)
    assert answer.text == same.text
    assert same.num_cached_tokens > 0
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "on"}]
    assert llm.chat(messages, GREEDY, max_tokens=10).num_cached_tokens > 0


CONVERSATIONS = {
    "a turn": [{"role": "user", "content": "in the rain"}],
    "parts, developer": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "<|im_end|> the"},
    ],
    "calls, mended": [
        {"role": "user", "content": "the rain"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "on the sea",
            "tool_calls": [
                {"type": "function", "function": {"name": "look", "arguments": '{"at": '}},
                {"id": "b", "type": "function", "function": {"name": "go", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "content": "rain"},
        {"role": "tool", "tool_call_id": "lost", "content": "sea"},
        {"role": "system", "content": "late"},
    ],
}


@pytest.fixture(scope="module")
def server(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    log = tmp_path_factory.mktemp("serving") / "log"
    with serving(str(tiny_path), "--num-threads", "1", log=log) as made:
        yield made


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_chat_asks_for_the_tokens_that_the_server_asks_for(llm, server, messages, monkeypatch):
    asked: list[list[int]] = []
    generate = llm._engine.generate

    def record(token_ids, *rest, **options):
        asked.append(list(token_ids))
        return generate(token_ids, *rest, **options)

    monkeypatch.setattr(llm._engine, "generate", record)
    llm.chat(messages, GREEDY, max_tokens=1)
    body = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    assert asked == [answer.json()["prompt_token_ids"]]


def test_chat_refuses_what_the_server_refuses(llm):
    with pytest.raises(InvalidRequest) as refusal:
        llm.chat([{"role": "wizard", "content": "x"}])
    assert refusal.value.param == "messages[0].role"
    with pytest.raises(InvalidRequest, match="at least 1 message"):
        llm.chat([])


def test_one_bad_prompt_ends_the_call_and_leaves_the_engine_well(llm):
    with pytest.raises(InvalidRequest, match="outside the vocabulary"):
        llm.generate([[1, 2], [100_000]], GREEDY, max_tokens=1000)
    assert llm.generate("a", GREEDY, max_tokens=2)[0].num_sampled_tokens == 2


@pytest.mark.parametrize(
    ("sampling", "named"), [({"temperature": 1}, "dict"), ({}, "dict"), ("", "str"), (5, "int")]
)
def test_what_stands_in_samplings_place_is_refused_by_its_type(llm, sampling, named):
    with pytest.raises(InvalidRequest, match=f"SamplingParams.*got {named}"):
        llm.generate(["a", "b"], [SamplingParams(), sampling], max_tokens=1)
    with pytest.raises(InvalidRequest, match=f"SamplingParams.*got {named}"):
        llm.generate("a", sampling, max_tokens=1)


def test_threads_share_it(llm):
    prompts = [f"the {word}" for word in ("rain", "sea", "in", "on", "at", "he")]
    expected = [c.text for c in llm.generate(prompts, GREEDY, max_tokens=30)]
    texts: dict[str, str] = {}

    def ask(prompt: str) -> None:
        texts[prompt] = llm.generate(prompt, GREEDY, max_tokens=30)[0].text

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [texts[prompt] for prompt in prompts] == expected


async def test_inside_a_running_event_loop(llm):
    """As in a notebook."""
    assert llm.generate("a", GREEDY, max_tokens=3)[0].num_sampled_tokens == 3


def test_more_prompts_than_places(llm):
    prompts = [[1 + i % 200, 2, 3] for i in range(400)]
    completions = llm.generate(prompts, GREEDY, max_tokens=2)
    assert [c.num_sampled_tokens for c in completions] == [2] * 400
    assert completions[0].token_ids == completions[200].token_ids


def test_closed_it_is_gone_and_collected_as_well(tiny_path):
    llm = LLM(model=tiny_path, config=CONFIG)
    pid = llm._engine.pid
    llm.close()
    llm.close()
    assert not is_running(pid)
    with pytest.raises(ServerStopping, match="closed"):
        llm.generate("a")

    llm = LLM(model=tiny_path, config=CONFIG)
    pid = llm._engine.pid
    del llm
    gc.collect()
    assert not is_running(pid)


def test_a_model_that_is_not_there(tmp_path):
    before = threading.active_count()
    with pytest.raises(CheckpointNotFound):
        LLM(model=tmp_path / "absent.gguf")
    # One of an engine that was closed before may be at its end.
    wait_until(lambda: threading.active_count() <= before, 60)


SCRIPT = """
    import sys, time
    from tokenlight import LLM, SamplingParams

    llm = LLM(model=sys.argv[1])
    print(len(llm.generate("the rain", SamplingParams(seed=4), max_tokens=5)[0].token_ids))
    print(llm._engine.pid, "torch" in sys.modules)
    if sys.argv[2] == "close":
        llm.close()
"""


@pytest.mark.parametrize("ending", ["close", "forget"])
def test_a_script_without_a_main_guard_ends_by_itself(tiny_path, ending):
    script = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tiny_path), ending],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    num_tokens, pid, has_torch = script.stdout.split()
    assert (num_tokens, has_torch, script.stderr) == ("5", "False", "")
    wait_until(lambda: not is_running(int(pid)), 60)
