# SPDX-License-Identifier: Apache-2.0
"""An engine of several processes, as its tests ask it and watch it."""

import time
from pathlib import Path

from tokenlight import wire
from tokenlight.engine.client import AsyncLLM

PROMPTS = ([5, 6, 7], list(range(40)), [9] * 17)


async def answers(llm: AsyncLLM, **sampling) -> list[list[int]]:
    told = []
    for number, prompt in enumerate(PROMPTS):
        ids: list[int] = []
        params = wire.SamplingParams(temperature=0.0, **sampling)
        async for delta in llm.generate(
            prompt, params, request_id=f"r{number}-{len(sampling)}", max_new_tokens=12,
            stop_token_ids=(),
        ):  # fmt: skip
            ids += delta.token_ids
        told.append(ids)
    return told


async def answer_for_ever(llm: AsyncLLM) -> None:
    while True:
        await answers(llm)


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_running(pid: int) -> bool:
    """A process that ended and was not yet waited for is not running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int], within_s: float) -> float:
    started = time.monotonic()
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() - started < within_s, "a rank outlived the others"
        time.sleep(0.05)
    return time.monotonic() - started
