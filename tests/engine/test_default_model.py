# SPDX-License-Identifier: Apache-2.0
"""The default model behind a real engine: it knows Paris, and a crowd never changes a text."""

import asyncio
import random
from contextlib import aclosing

import pytest

from tests.engine.rig import GREEDY
from tests.engine.test_client import is_at_rest, until
from tokenlight import LLM
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.wire import SamplingParams

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

NUM_STREAMS = 32
KV_TOKENS = 768
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2


def test_the_capital_of_france(default_model_path):
    with LLM(model=default_model_path) as llm:
        (completion,) = llm.generate("The capital of France is", GREEDY, max_tokens=4)
        assert completion.text.startswith(" Paris.")
        question = [{"role": "user", "content": "What is the capital of France?"}]
        assert "Paris" in llm.chat(question, GREEDY, max_tokens=48).text


def outgrows(index: int) -> bool:
    """Says more than admission sets aside: begun together, these need twice the memory."""
    return index % 4 == 1


async def read(llm: AsyncLLM, index: int, prompt: list[int], *, leaves_after: int | None = None):
    """The tokens of one stream; half of them greedy, half seeded."""
    sampling = SamplingParams(temperature=0.8, top_p=0.95, seed=index) if index % 2 else GREEDY
    tokens: list[int] = []
    deltas = llm.generate(
        prompt,
        sampling,
        request_id=f"s{index}",
        max_new_tokens=150 if outgrows(index) else random.Random(index).randrange(5, 60),
    )
    async with aclosing(deltas):
        async for delta in deltas:
            tokens += delta.token_ids
            if leaves_after is not None and len(tokens) >= leaves_after:
                break
    return tokens


async def test_thirty_two_streams_each_have_the_text_they_have_alone(default_model_path):
    """Joins, leaves, a shared prefix, memory for a quarter of them: cold = warm = preempted."""
    rng = random.Random(3)
    shared = [rng.randrange(1000, 40_000) for _ in range(40)]
    prompts = [
        (shared if index % 4 == 0 else [])
        + [rng.randrange(1000, 40_000) for _ in range(rng.randrange(1, 90))]
        for index in range(NUM_STREAMS)
    ]
    llm = await AsyncLLM.start(
        EngineConfig(
            model=ModelConfig(model=str(default_model_path)),
            cache=CacheConfig(kv_cache_bytes=KV_TOKENS * KV_BYTES_PER_TOKEN),
        )
    )
    alone = [await read(llm, index, prompts[index]) for index in range(NUM_STREAMS)]
    assert len({tuple(tokens) for tokens in alone}) == NUM_STREAMS

    async def visit(index: int, joins_after_s: float, leaves_after: int | None) -> None:
        await asyncio.sleep(joins_after_s)
        tokens = await read(llm, index, prompts[index], leaves_after=leaves_after)
        expected = alone[index]
        if leaves_after is not None:
            assert len(tokens) >= min(leaves_after, len(expected))
            expected = expected[: len(tokens)]
        assert tokens == expected, f"stream {index}"

    async with asyncio.TaskGroup() as group:
        for index in range(NUM_STREAMS):
            leaves_after = rng.randrange(1, 20) if index % 5 == 0 else None
            joins_after_s = 0.0 if outgrows(index) else rng.random() * 2
            group.create_task(visit(index, joins_after_s, leaves_after))
    await until(lambda: is_at_rest(llm))
    assert llm.status().num_preemptions > 0
    assert llm.status().num_failed == 0
    await llm.close()
