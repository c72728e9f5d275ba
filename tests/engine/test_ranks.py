# SPDX-License-Identifier: Apache-2.0
"""A model over several processes: the same tokens as on one, and no survivor when one is lost."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.served import free_port
from tests.engine.rank_processes import (
    PROMPTS,
    answer_for_ever,
    answers,
    wait_until_gone,
)
from tests.models.tiny import write_tiny_llama
from tests.processes import children
from tokenlight.base.errors import EngineDead
from tokenlight.config import EngineConfig, ModelConfig, ParallelConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

STOPS_S = 15.0  # five on a machine that does nothing else


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("ranks") / "tiny.gguf", heads=4, kv_heads=2)


def config_of(model: Path, tp: int) -> EngineConfig:
    return EngineConfig(model=ModelConfig(model=str(model)), parallel=ParallelConfig(tp=tp))


async def test_two_and_four_ranks_give_the_tokens_of_one(model: Path):
    told = {}
    for tp in (1, 2, 4):
        llm = await AsyncLLM.start(config_of(model, tp))
        try:
            # Prompt log-probabilities run body and head apart, and rows of the head several times.
            told[tp] = [await answers(llm), await answers(llm, num_prompt_logprobs=1)]
        finally:
            await llm.close()
    assert told[2] == told[1]
    assert told[4] == told[1]
    assert all(len(ids) == 12 for run in told[1] for ids in run)


@pytest.mark.parametrize("tp", [2])
async def test_ranks_whose_steps_are_in_flight_give_the_same_tokens(model: Path, tp: int):
    """Of every kind: ids that only devices know, prompts that are read, rows that are shaped."""
    shaped = {"repetition_penalty": 1.3, "num_logprobs": 2}
    told = []
    for overlap in (0, 2):
        config = replace(config_of(model, tp), scheduler=SchedulerConfig(overlap=overlap))
        llm = await AsyncLLM.start(config)
        try:
            told.append(
                [
                    await answers(llm),
                    *await asyncio.gather(
                        answers(llm, num_prompt_logprobs=1), answers(llm, **shaped)
                    ),
                ]
            )
        finally:
            await llm.close()
    assert told[0] == told[1]
    assert told[0][2] != told[0][0]


@pytest.mark.parametrize(
    ("how", "parallel"),
    [(signal.SIGKILL, ParallelConfig(dp=2)), (signal.SIGSTOP, ParallelConfig(tp=2))],
    ids=["killed-dp2", "hung-tp2"],
)
async def test_a_lost_rank_ends_all_and_the_client_hears_of_it(
    model: Path, how: signal.Signals, parallel: ParallelConfig
):
    llm = await AsyncLLM.start(replace(config_of(model, 2), parallel=parallel))
    engine = llm.pid
    ranks = children(engine)
    assert len(ranks) == 1
    try:
        await answers(llm)
        started = time.monotonic()
        os.kill(ranks[0], how)
        with pytest.raises(EngineDead):
            await answer_for_ever(llm)
        assert time.monotonic() - started < STOPS_S
        wait_until_gone([engine, *ranks], STOPS_S)
    finally:
        await llm.close()


async def test_ranks_end_with_the_engine(model: Path):
    llm = await AsyncLLM.start(config_of(model, 2))
    ranks = children(llm.pid)
    os.kill(llm.pid, signal.SIGKILL)
    wait_until_gone(ranks, STOPS_S)
    await llm.close()


async def test_an_orderly_end_takes_the_ranks_along(model: Path):
    llm = await AsyncLLM.start(config_of(model, 2))
    pids = [llm.pid, *children(llm.pid)]
    await llm.close()
    wait_until_gone(pids, STOPS_S)


async def test_ranks_that_a_launcher_started_give_the_same_tokens(model: Path, tmp_path: Path):
    """As torchrun starts them: one command line for all, and who is who by variables."""
    common = {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "TOKENLIGHT_LOG_LEVEL": "info",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "tokenlight",
        "serve",
        str(model),
        "--tensor-parallel-size",
        "2",
    ]
    with (tmp_path / "log").open("w") as log:
        ranks = [
            subprocess.Popen(
                [*command, "--port", "0"],
                env={**os.environ, **common, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for rank in (0, 1)
        ]
    try:
        url = next(line.split()[1] for line in ranks[0].stdout if line.strip().startswith("url"))
        asked = {"prompt": PROMPTS[1], "max_tokens": 12, "temperature": 0, "return_token_ids": True}
        answer = httpx.post(f"{url}/completions", json=asked, timeout=60).json()
        llm = await AsyncLLM.start(config_of(model, 1))
        try:
            assert answer["choices"][0]["token_ids"] == (await answers(llm))[1]
        finally:
            await llm.close()
        ranks[0].terminate()
        assert [rank.wait(30) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.stdout.close()
