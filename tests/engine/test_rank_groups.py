# SPDX-License-Identifier: Apache-2.0
"""Ranks with other requests in attention: each answer is transformers', wherever it is computed."""

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from tests.models.hugging_face import logits_of, make_twin, random_state
from tests.models.test_every_model import VARIANTS
from tests.spmd.test_models_on_ranks import save
from tokenlight import wire
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from tokenlight.engine.client import AsyncLLM
from tokenlight.kv import kv_bytes_per_token
from tokenlight.models import cache_specs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BLOCK_TOKENS = 4
NUM_NEW = 10
NUM_MANY = 90  # more than admission keeps room for
STATUS_S = 10.0
# Of different lengths, so that groups have different numbers of tokens in every step.
PROMPTS = ([5, 6, 7], list(range(40)), [9] * 17, [3, 1, 4, 1, 5, 9, 2, 6])
MESHES = {
    "dp2": ("llama-biases", ParallelConfig(dp=2), 0),
    "dp2-tp2-ep2": ("deepseek_v3", ParallelConfig(tp=2, dp=2, ep=2), 0),
    # Tokens are sent to their experts' ranks.
    "dp4-ep4": ("deepseek_v3", ParallelConfig(dp=4, ep=4, dense_tp=1), 0),
    "dp2-overlap": ("llama-biases", ParallelConfig(dp=2), 1),
    "dp2-tp2-ep2-overlap": ("deepseek_v3", ParallelConfig(tp=2, dp=2, ep=2), 2),
}


def twin_of(model: str, **changes: object) -> PreTrainedModel:
    """As `save` saves it."""
    variant = VARIANTS[model]
    config = {**variant.config, "num_hidden_layers": 2, **changes}
    return make_twin(variant.model_type, config, random_state(variant.model_type, config, seed=3))


def greedy(twin: PreTrainedModel, prompt: list[int], num_new: int = NUM_NEW) -> list[int]:
    told = list(prompt)
    for _ in range(num_new):
        told.append(int(logits_of(twin, told)[-1].argmax()))
    return told[len(prompt) :]


def config_of(
    path: Path, parallel: ParallelConfig, overlap: int = 0, **cache: object
) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(model=str(path)),
        cache=CacheConfig(block_tokens=BLOCK_TOKENS, **cache),
        parallel=parallel,
        scheduler=SchedulerConfig(overlap=overlap),
        device="cpu",
        num_threads=1,
    )


async def answer(
    llm: AsyncLLM, name: str, prompt: list[int], *, num_new: int = NUM_NEW, **asked: int
) -> tuple[list[int], int]:
    """The tokens, and how many of the prompt were cached."""
    ids: list[int] = []
    deltas = llm.generate(
        prompt,
        wire.SamplingParams(temperature=0.0, **asked),
        request_id=name,
        max_new_tokens=num_new,
        stop_token_ids=(),
    )
    async for delta in deltas:
        ids += delta.token_ids
        num_cached = delta.num_cached_tokens
    return ids, num_cached


@pytest.mark.parametrize("name", MESHES)
async def test_groups_answer_as_transformers_does(tmp_path: Path, name: str):
    model, parallel, overlap = MESHES[name]
    save(model, tmp_path / "model")
    twin = twin_of(model)
    want = [greedy(twin, prompt) for prompt in PROMPTS]
    llm = await AsyncLLM.start(config_of(tmp_path / "model", parallel, overlap))
    try:
        alone = await answer(llm, "alone", PROMPTS[0])
        assert alone == (want[0], 0)
        together = await asyncio.gather(
            *(answer(llm, f"first-{i}", prompt) for i, prompt in enumerate(PROMPTS))
        )
        assert [ids for ids, _ in together] == want
        # The next turn of each goes where its KV is.
        for i, prompt in enumerate(PROMPTS[1:], start=1):
            turn = [*prompt, *want[i], 8]
            ids, num_cached = await answer(llm, f"second-{i}", turn)
            assert ids == greedy(twin, turn)
            assert num_cached == (len(turn) - 2) // BLOCK_TOKENS * BLOCK_TOKENS
        # Body and head apart, and the head of any rows.
        read = await asyncio.gather(
            *(
                answer(llm, f"read-{i}", prompt, num_prompt_logprobs=1)
                for i, prompt in enumerate(PROMPTS)
            )
        )
        assert [ids for ids, _ in read] == want
    finally:
        await llm.close()


@pytest.mark.parametrize("name", ["dp2", "dp2-overlap"])
async def test_groups_that_run_out_of_blocks_preempt_and_answer_the_same(tmp_path: Path, name: str):
    model, parallel, overlap = MESHES[name]
    twin = twin_of(model, max_position_embeddings=128)
    twin.save_pretrained(tmp_path / "model")
    caches = cache_specs(open_checkpoint(tmp_path / "model"))
    block_bytes = BLOCK_TOKENS * kv_bytes_per_token(caches, torch.float32)
    config = config_of(tmp_path / "model", parallel, overlap, kv_cache_bytes=38 * block_bytes)
    prompts = [[number] * 6 for number in range(4)]
    llm = await AsyncLLM.start(config)
    try:
        assert llm.facts.num_blocks == 2 * 38
        told = await asyncio.gather(
            *(answer(llm, f"{i}", prompt, num_new=NUM_MANY) for i, prompt in enumerate(prompts))
        )
        assert [ids for ids, _ in told] == [greedy(twin, prompt, NUM_MANY) for prompt in prompts]
        async with asyncio.timeout(STATUS_S):
            while not llm.status().num_preemptions:
                await asyncio.sleep(0.1)
    finally:
        await llm.close()
