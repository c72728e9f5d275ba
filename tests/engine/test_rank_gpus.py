# SPDX-License-Identifier: Apache-2.0
"""An engine over two GPUs: the tokens of one, steps captured or not, and no survivor of a loss."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_models import write_model
from tests.engine.rank_processes import answer_for_ever, answers, wait_until_gone
from tests.processes import children
from tokenlight.base.errors import EngineDead
from tokenlight.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from tokenlight.engine.client import AsyncLLM

pytestmark = [pytest.mark.multi_gpu, pytest.mark.e2e, pytest.mark.timeout(100)]

ENDS_S = 5.0
EXPERTS: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}


def config_of(folder: Path, **changes: Any) -> EngineConfig:
    """In float32: two sums in other orders choose the same tokens."""
    plain = EngineConfig(
        model=ModelConfig(model=str(folder), load_format="dummy", dtype="float32"),
        cache=CacheConfig(kv_cache_bytes=64 << 20),
        scheduler=SchedulerConfig(max_num_requests=8, max_step_tokens=256, max_model_tokens=512),
        device="cuda",
    )
    return replace(plain, **changes)


async def told_by(config: EngineConfig) -> list[list[list[int]]]:
    llm = await AsyncLLM.start(config, log_level="info")
    try:
        return [await answers(llm), await answers(llm, num_prompt_logprobs=1)]
    finally:
        await llm.close()


@pytest.mark.parametrize("step_graphs", ["off", "on"])
@pytest.mark.parametrize(
    "parallel", [ParallelConfig(tp=2), ParallelConfig(dp=2)], ids=["tp2", "dp2"]
)
async def test_two_gpus_give_the_tokens_of_one(
    tmp_path: Path, parallel: ParallelConfig, step_graphs: str
):
    config = config_of(write_model("tiny", tmp_path), step_graphs=step_graphs)
    alone = await told_by(config)
    assert await told_by(replace(config, parallel=parallel)) == alone
    assert len({tuple(ids) for ids in alone[0]}) > 1


@pytest.mark.parametrize(
    ("parallel", "step_graphs"),
    [
        (ParallelConfig(tp=2), "off"),
        (ParallelConfig(tp=2, ep=2), "off"),
        (ParallelConfig(dp=2, ep=2, dense_tp=1), "on"),
    ],
    ids=["tp2", "ep2", "dp2-ep2"],
)
async def test_two_gpus_share_experts(tmp_path: Path, parallel: ParallelConfig, step_graphs: str):
    config = config_of(write_model("qwen3_30b_a3b", tmp_path, **EXPERTS), step_graphs=step_graphs)
    alone = await told_by(config)
    assert await told_by(replace(config, parallel=parallel)) == alone


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
async def test_a_lost_gpu_ends_all_and_the_client_hears_of_it(tmp_path: Path, how: signal.Signals):
    folder = write_model("tiny", tmp_path)
    llm = await AsyncLLM.start(config_of(folder, parallel=ParallelConfig(tp=2)))
    ranks = children(llm.pid)
    try:
        assert len(ranks) == 1
        await answers(llm)
        started_s = time.monotonic()
        os.kill(ranks[0], how)
        with pytest.raises(EngineDead):
            await answer_for_ever(llm)
        wait_until_gone([llm.pid, *ranks], ENDS_S)
        assert time.monotonic() - started_s < ENDS_S
    finally:
        await llm.close()
