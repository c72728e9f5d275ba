# SPDX-License-Identifier: Apache-2.0
"""The engine and the process that started it: neither outlives, blocks or misleads the other."""

import asyncio
import dataclasses
import math
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.engine.test_client import PROMPT, config, is_at_rest, start, until
from tests.models.tiny import write_tiny_llama
from tests.processes import children, cpu_s, is_running
from tokenlight.base.errors import EngineDead, EngineError, EngineStalled
from tokenlight.config import EngineConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM

pytestmark = pytest.mark.e2e

LONG = 60_000
"""Tokens of a prompt."""


@contextmanager
def told_of_end(pid: int) -> Iterator[list[float]]:
    """When the kernel says that the process has ended; known once the block is left.

    A killed process ends when its memory is given back: on a busy machine that alone takes long.
    """
    times_s: list[float] = []
    process = os.pidfd_open(pid)

    def watch() -> None:
        select.select([process], [], [], 60)
        times_s.append(time.monotonic())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield times_s
    finally:
        watching.join()
        os.close(process)


async def test_killed_every_reader_hears_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenlight.engine.link._BEAT_LIMIT_S", 600.0)
    llm = await AsyncLLM.start(config(write_tiny_llama(tmp_path / "long.gguf", context=32768)))
    readers = []
    for name in "abc":
        deltas = start(llm, name, max_new_tokens=30_000)
        await anext(deltas)
        readers.append(deltas)
    with told_of_end(llm.pid) as ended_s:
        os.kill(llm.pid, signal.SIGKILL)
        for deltas in readers:
            with pytest.raises(EngineDead, match="ended by signal 9"):
                [d async for d in deltas]
        heard_s = time.monotonic()
    assert heard_s - ended_s[0] < 60  # and not by the silence of its beats
    assert isinstance(llm.health(), EngineDead)
    with pytest.raises(EngineDead):
        start(llm, "d")
    assert isinstance(await llm.wait_dead(), EngineDead)
    await llm.close()


async def test_stopped_it_is_stalled_and_recovers_when_continued(tiny_path, monkeypatch):
    llm = await AsyncLLM.start(config(tiny_path))
    deltas = start(llm, "a", max_new_tokens=400)
    first = await anext(deltas)
    monkeypatch.setattr("tokenlight.engine.link._BEAT_LIMIT_S", 2.0)
    os.kill(llm.pid, signal.SIGSTOP)
    try:
        await until(lambda: llm.health() is not None)
        assert isinstance(llm.health(), EngineStalled)
        with pytest.raises(EngineStalled, match=r"not been heard of for \d"):
            start(llm, "b")
    finally:
        os.kill(llm.pid, signal.SIGCONT)
    await until(lambda: llm.health() is None)
    tokens = first.token_ids + [t async for d in deltas for t in d.token_ids]
    assert len(tokens) == 400
    await until(lambda: is_at_rest(llm))
    await llm.close()


async def test_a_request_without_a_token_for_too_long_is_ended(tiny_path):
    llm = await AsyncLLM.start(config(tiny_path), max_silence_s=2)
    assert len([d async for d in start(llm, "lively", max_new_tokens=500)]) > 0
    os.kill(llm.pid, signal.SIGSTOP)
    with pytest.raises(EngineStalled, match="request a got no token for 2 s"):
        [d async for d in start(llm, "a")]
    os.kill(llm.pid, signal.SIGCONT)
    await until(lambda: is_at_rest(llm))
    await llm.close()


@pytest.mark.slow
async def test_a_busy_event_loop_is_no_stalled_engine(tiny_path):
    llm = await AsyncLLM.start(config(tiny_path))
    time.sleep(5.5)
    assert llm.health() is None
    await llm.close()


async def test_closing_ends_even_a_stopped_engine(tiny_path, monkeypatch):
    monkeypatch.setattr("tokenlight.engine.link._STOP_GRACE_S", 0.5)
    llm = await AsyncLLM.start(config(tiny_path))
    os.kill(llm.pid, signal.SIGSTOP)
    await llm.close()
    assert not is_running(llm.pid)
    assert "signal 9" in str(await llm.wait_dead())


async def test_terminated_it_ends_well_and_interrupted_it_goes_on(tiny_path):
    llm = await AsyncLLM.start(config(tiny_path))
    os.kill(llm.pid, signal.SIGINT)
    assert len([d async for d in start(llm, "a", max_new_tokens=5)]) > 0
    os.kill(llm.pid, signal.SIGTERM)  # while it waits for mail
    async with asyncio.timeout(60):
        assert "exit code 0" in str(await llm.wait_dead())
    await llm.close()


async def test_an_idle_engine_costs_no_cpu(tiny_path):
    """Nor do its kernels' threads spin. The least of some: waking on a busy core costs more."""
    llm = await AsyncLLM.start(dataclasses.replace(config(tiny_path), num_threads=2))
    [d async for d in start(llm, "a", max_new_tokens=50)]

    used_s: list[float] = []
    while len(used_s) < 8 and min(used_s, default=math.inf) > 0.01:
        before_s = cpu_s(llm.pid)
        await asyncio.sleep(1.1)  # a beat at least
        used_s.append(cpu_s(llm.pid) - before_s)
    assert min(used_s) <= 0.01  # of which the kernel tells whole hundredths
    assert sum(used_s) < 0.5, "late wakes cost little: a thread spun before it slept"
    await llm.close()


PARENT = """
    import asyncio, sys
    import msgspec
    from tokenlight.config import EngineConfig, SchedulerConfig
    from tokenlight.engine.client import AsyncLLM
    from tokenlight.wire import SamplingParams

    async def main():
        llm = await AsyncLLM.start(msgspec.json.decode(sys.argv[1], type=EngineConfig))
        print("torch" in sys.modules, llm.pid, llm._link._folder, flush=True)
        prompt = [1 + i % 200 for i in range(int(sys.argv[2]))]
        deltas = llm.generate(
            prompt, SamplingParams(), request_id="a", max_new_tokens=2000
        )
        is_long = len(prompt) > 1000
        watching = asyncio.create_task(watch(llm)) if is_long else None
        async for delta in deltas:
            print("token", flush=True)

    async def watch(llm):
        while llm.status().step_running_s < 0.2:
            await asyncio.sleep(0.05)
        print("a long step", flush=True)

    asyncio.run(main())
"""


def spawn_parent(config: EngineConfig, num_prompt_tokens: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(PARENT),
            msgspec.json.encode(config).decode(),
            str(num_prompt_tokens),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def run_parent(
    config: EngineConfig, num_prompt_tokens: int
) -> tuple[subprocess.Popen[str], list[str]]:
    """A parent whose engine is ready, and what it said of it."""
    parent = spawn_parent(config, num_prompt_tokens)
    assert parent.stdout is not None
    return parent, parent.stdout.readline().split()


def end(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert parent.stdout is not None
    parent.stdout.close()


async def test_no_orphan_when_the_parent_is_killed(tiny_path):
    parent, (has_torch, pid, folder) = run_parent(config(tiny_path), len(PROMPT))
    assert has_torch == "False"
    assert parent.stdout.readline() == "token\n"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    end(parent)
    await until(lambda: not is_running(int(pid)))
    assert not Path(folder).exists()


async def test_no_orphan_while_the_engine_still_loads(tiny_path):
    parent = spawn_parent(config(tiny_path), len(PROMPT))
    await until(lambda: children(parent.pid))
    (pid,) = children(parent.pid)
    parent.kill()
    await until(lambda: not is_running(pid))  # Python itself has to start first
    assert parent.stdout.read() == "", "it was ready already"
    end(parent)


def long_steps(folder: Path) -> EngineConfig:
    """One step over a prompt of LONG tokens takes 4 s at 30,000, and with the square of them."""
    path = write_tiny_llama(folder / "long.gguf", context=65536)
    return dataclasses.replace(config(path), scheduler=SchedulerConfig(max_step_tokens=65536))


async def test_no_orphan_while_a_long_step_runs(tmp_path):
    """The engine does not wait for its end."""
    parent, (_, pid, _) = run_parent(long_steps(tmp_path), LONG)
    assert parent.stdout.readline() == "a long step\n"
    parent.kill()
    await until(lambda: not is_running(int(pid)))
    assert parent.stdout.read() == "", "the step was too short to prove anything"
    end(parent)


@pytest.mark.slow
async def test_a_long_step_is_no_stalled_engine(tmp_path):
    """It beats while the step runs, and tells for how long it has."""
    llm = await AsyncLLM.start(long_steps(tmp_path))
    reader = asyncio.create_task(anext(start(llm, "a", [1 + i % 200 for i in range(LONG)])))
    await until(lambda: llm.status().step_running_s > 1)
    assert llm.health() is None
    assert not reader.done(), "the step was too short to prove anything"
    reader.cancel()
    await llm.close()


BROKEN = """
from tokenlight.runner import ModelRunner


def launch(self, plan):
    raise RuntimeError("broken for good")


ModelRunner.launch = launch
"""


async def test_an_engine_whose_every_step_fails_says_so_and_ends(tiny_path, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)  # the engine imports what its parent does
    llm = await AsyncLLM.start(config(tiny_path))
    for name in "abc":
        with pytest.raises(EngineError, match=f"request {name}: .*broken for good") as failed:
            await anext(start(llm, name))
        assert failed.value.code == "engine_error"
    async with asyncio.timeout(60):
        assert "ended with exit code 1" in str(await llm.wait_dead())
    assert isinstance(llm.health(), EngineDead)
    await llm.close()
