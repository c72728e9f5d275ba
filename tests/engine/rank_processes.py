# SPDX-License-Identifier: Apache-2.0
"""An engine of several processes, as its tests ask it and watch it."""

from tests.processes import is_running, wait_until
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


def wait_until_gone(pids: list[int], within_s: float) -> None:
    """Raises if one of them is still there at the end."""
    wait_until(lambda: not any(map(is_running, pids)), within_s)
