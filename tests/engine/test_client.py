# SPDX-License-Identifier: Apache-2.0
"""AsyncLLM against a real engine process on a tiny model: streams, aborts, limits, endings."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.rig import GREEDY, Rig, generate
from tests.models.tiny import write_tiny_llama
from tokenlight import wire
from tokenlight.base.errors import (
    CheckpointCorrupt,
    CheckpointNotFound,
    ConfigError,
    ContextTooLong,
    EngineError,
    InvalidRequest,
    Overloaded,
    ServerStopping,
)
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig
from tokenlight.engine.client import AsyncLLM

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PROMPT = list(range(3, 23))
CONTEXT_TOKENS = 32768


def config(path: Path, **cache: int) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(model=str(path)), cache=CacheConfig(**cache), num_threads=1
    )


@pytest.fixture(scope="module")
def long_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with room for an answer that does not end while a test looks."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("long") / "tiny.gguf", seed=5, context=CONTEXT_TOKENS
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_llm(long_path: Path) -> AsyncIterator[AsyncLLM]:
    llm = await AsyncLLM.start(config(long_path))
    yield llm
    await llm.close()


@pytest_asyncio.fixture(loop_scope="module")
async def llm(shared_llm: AsyncLLM, request: pytest.FixtureRequest) -> AsyncIterator[AsyncLLM]:
    """At rest before and after: no test leaves a request behind, but where it failed midway."""
    num_failed = request.session.testsfailed
    yield shared_llm
    if request.session.testsfailed > num_failed:
        for name in "abcd":
            shared_llm.abort(name)
    await until(lambda: is_at_rest(shared_llm))
    assert shared_llm.health() is None


def start(llm: AsyncLLM, request_id: str, prompt: list[int] = PROMPT, **limits: int):
    return llm.generate(
        prompt, GREEDY, request_id=request_id, max_new_tokens=limits.get("max_new_tokens", 30_000)
    )


async def until(condition, *, within_s: float = 60) -> None:
    """What must come to pass, however busy the machine is."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to pass in time"
        await asyncio.sleep(0.02)


def is_at_rest(llm: AsyncLLM) -> bool:
    status = llm.status()
    return (
        llm.num_unfinished == status.num_running == status.num_waiting == 0
        and status.num_free_blocks == status.num_blocks
    )


async def test_tokens_are_those_of_the_loop(llm, rig: Rig):
    expected = rig.play({0: [generate("a", PROMPT, max_new_tokens=30)]})[0]["a"]
    deltas = [delta async for delta in start(llm, "a", max_new_tokens=30)]
    assert [t for d in deltas for t in d.token_ids] == expected.token_ids
    assert [d.finish_reason for d in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert (deltas[-1].finish_reason, deltas[-1].num_sampled_tokens) == ("length", 30)
    assert llm.health() is None
    assert llm.facts.vocab_size == 512


async def test_what_cannot_be_served_is_refused_by_the_call(llm):
    with pytest.raises(ContextTooLong):
        start(llm, "a", [1] * llm.facts.max_model_tokens)
    with pytest.raises(InvalidRequest, match="outside the vocabulary"):
        start(llm, "a", [llm.facts.vocab_size])
    async with aclosing(start(llm, "a")) as deltas:
        await anext(deltas)
        with pytest.raises(InvalidRequest, match="'a' is running"):
            start(llm, "a")


async def test_what_cannot_be_sent_takes_no_place(llm, monkeypatch):
    def send(message: object) -> None:
        raise OSError("no buffer space")

    monkeypatch.setattr(llm._link, "send", send)
    for _ in range(2):
        with pytest.raises(OSError, match="no buffer"):
            await anext(start(llm, "a"))
        assert llm.num_unfinished == 0


async def test_leaving_aborts_at_any_point(llm):
    """Closed before the first token, after it, by breaking off, by cancelling the reader."""
    never_begun = start(llm, "a")
    await never_begun.aclose()
    assert llm.num_unfinished == 0

    begun = start(llm, "b")
    await anext(begun)
    await begun.aclose()

    reader = asyncio.create_task(anext(start(llm, "c")))
    await asyncio.sleep(0)
    reader.cancel()

    async with aclosing(start(llm, "d")) as deltas:
        async for delta in deltas:
            if delta.num_sampled_tokens >= 5:
                break
    await until(lambda: is_at_rest(llm))


async def test_an_aborted_request_says_so(llm):
    deltas = start(llm, "a")
    await anext(deltas)
    llm.abort("a")
    llm.abort("unknown")
    assert [d async for d in deltas][-1].finish_reason == "abort"
    await until(lambda: is_at_rest(llm))


async def test_an_abort_frees_long_before_the_answer_would_have_ended(llm):
    """What that costs in steps is tests/engine/test_loop.py's to say."""
    before = llm.status().num_sampled_tokens
    deltas = start(llm, "a", max_new_tokens=30_000)
    await anext(deltas)
    await deltas.aclose()
    await until(lambda: is_at_rest(llm))
    assert llm.status().num_sampled_tokens - before < 15_000


async def test_a_slow_reader_gets_all_tokens_in_fewer_deltas(llm):
    quick = [t async for d in start(llm, "a", max_new_tokens=200) for t in d.token_ids]
    slow = start(llm, "b", max_new_tokens=200)
    deltas = [await anext(slow)]
    await until(lambda: llm.num_unfinished == 0)
    deltas += [d async for d in slow]
    assert [t for d in deltas for t in d.token_ids] == quick
    assert len(deltas) == 2


async def test_too_many_are_told_to_come_back(long_path):
    llm = await AsyncLLM.start(config(long_path), max_unfinished=2)
    try:
        running = [start(llm, name) for name in "ab"]
        for deltas in running:
            await anext(deltas)
        with pytest.raises(Overloaded, match="2 requests are unfinished, the limit is 2"):
            start(llm, "c")
        await running[0].aclose()
        await until(lambda: llm.num_unfinished == 1)
        assert [d async for d in start(llm, "c", max_new_tokens=3)]
        await running[1].aclose()
    finally:
        await llm.close()


@pytest.mark.slow
async def test_a_thousand_random_aborts_leak_nothing(tiny_path):
    """Small memory, so that they leave from the queue, from prefill, from decode and preempted."""
    llm = await AsyncLLM.start(config(tiny_path, kv_cache_bytes=300 * 1024))
    rng = random.Random(11)
    finished = 0

    async def visit(index: int) -> None:
        nonlocal finished
        prompt = [rng.randrange(300) for _ in range(rng.choice([1, 30, 200]))]
        deltas = start(llm, f"r{index}", prompt, max_new_tokens=rng.choice([2, 50, 300]))
        try:
            async with asyncio.timeout(rng.expovariate(1 / 0.03)), aclosing(deltas):
                async for _ in deltas:
                    pass
            finished += 1
        except TimeoutError:
            pass

    try:
        waves = [range(first, first + 50) for first in range(0, 1000, 50)]
        for wave in waves:
            await asyncio.gather(*map(visit, wave))
        await until(lambda: is_at_rest(llm))
        assert 0 < finished < 500
        assert llm.status().num_failed == 0
        assert [d async for d in start(llm, "after", max_new_tokens=3)][
            -1
        ].finish_reason == "length"
    finally:
        await llm.close()


async def test_close_drains_then_cuts(long_path):
    llm = await AsyncLLM.start(config(long_path))
    short = start(llm, "short", max_new_tokens=60)
    long = start(llm, "long", max_new_tokens=30_000)
    for deltas in (short, long):
        await anext(deltas)
    closing = asyncio.create_task(llm.close(drain_s=60))
    await asyncio.sleep(0)
    with pytest.raises(ServerStopping):
        start(llm, "new")
    assert [d async for d in short][-1].finish_reason == "length"
    await llm.close(drain_s=0.1)
    with pytest.raises(ServerStopping):
        [d async for d in long]
    await closing
    assert "exit code 0" in str(await llm.wait_dead())


async def test_a_drain_ends_when_the_last_request_does(tiny_path):
    llm = await AsyncLLM.start(config(tiny_path))

    async def read() -> list[int]:
        return [t async for d in start(llm, "a", max_new_tokens=20) for t in d.token_ids]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    began_s = time.monotonic()
    await llm.close(drain_s=60)
    assert time.monotonic() - began_s < 50
    assert len(await reader) == 20


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: config(path.with_name("absent.gguf")), CheckpointNotFound),
        (lambda path: config(truncated(path)), CheckpointCorrupt),
        (lambda path: config(path, kv_cache_bytes=1), ConfigError),
    ],
)
async def test_an_engine_that_cannot_start_says_why(tiny_path, make, error):
    with pytest.raises(error) as refused:
        await AsyncLLM.start(make(tiny_path))
    assert type(refused.value) is error
    assert len(str(refused.value)) > 20


def truncated(path: Path) -> Path:
    cut = path.with_name("cut.gguf")
    cut.write_bytes(path.read_bytes()[:5000])
    return cut


async def test_tokens_that_were_delivered_are_read_before_the_request_fails(llm):
    """A reader that is late gets them first, whatever comes behind them."""
    async with aclosing(start(llm, "a")) as deltas:
        first = await anext(deltas)
        stream = llm._streams["a"]
        seen = stream._num_sampled_tokens
        await until(lambda: len(stream._unread) > 3)
        failed = wire.Delta(
            request_id="a", token_ids=[], num_cached_tokens=0, finish_reason="error", error="why"
        )
        llm._on_deltas([failed])
        late = await anext(deltas)
        with pytest.raises(EngineError, match="request a: why"):
            await anext(deltas)
    llm._link.send(wire.Abort(request_id="a"))
    assert first.token_ids
    assert late.num_sampled_tokens - seen == len(late.token_ids) > 3
