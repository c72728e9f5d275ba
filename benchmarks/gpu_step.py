# SPDX-License-Identifier: Apache-2.0
"""Where a decode step's time goes on a GPU: the host's part, and kernel by kernel.

The real loop and runner in this process, dummy weights: `python -m benchmarks.gpu_step [SHAPE]
[BATCH ...] [--layers N] [--device cpu]`. Per batch it prints the time of a step and of its replay
alone, what the loop's thread spent outside waiting for the device, and torch's profile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_models import SHAPES, write_model
from tokenlight import wire
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.control import Scheduler
from tokenlight.engine.heartbeat import Board
from tokenlight.engine.loop import Loop
from tokenlight.runner import ModelRunner, scheduler_config
from tokenlight.runner.staged import StagedLaunch
from tokenlight.runner.staging import Size

CONTEXT_TOKENS = 512
NUM_STEPS = 200
PROFILED_STEPS = 20
MAX_STEPS = 4000


class Clock:
    """Mail that asks for `batch` answers and stops the loop after so many steps."""

    def __init__(self, batch: int, num_steps: int, context_tokens: int) -> None:
        self._batch = batch
        self._context_tokens = context_tokens
        self._num_steps = num_steps
        self.loop: Loop
        self.num_sent = 0
        self.started_s = self.ended_s = 0.0
        self.is_asked = False

    def wait(self) -> None:
        if self.is_asked:
            raise RuntimeError("the engine is idle before the steps were done")

    def wake(self) -> None: ...

    def read(self) -> Iterator[wire.ToEngine]:
        if self.is_asked:
            return
        self.is_asked = True
        for index in range(self._batch):
            yield wire.Generate(
                request_id=f"r{index}",
                prompt_token_ids=wire.pack_token_ids(
                    [(7 * index + i) % 2000 for i in range(self._context_tokens)]
                ),
                sampling=wire.SamplingParams(temperature=0.0),
                max_new_tokens=MAX_STEPS,
            )

    def send(self, message: wire.FromEngine) -> None:
        assert isinstance(message, wire.Deltas)
        for delta in message.deltas:
            assert delta.finish_reason is None, delta.error
        if len(message.deltas) < self._batch:
            return  # prompts are still computed
        if self.num_sent == 0:
            self.started_s = time.perf_counter()
            waited.clear()
        self.num_sent += 1
        if self.num_sent > self._num_steps:
            self.ended_s = time.perf_counter()
            self.loop.is_stopping = True


waited: list[float] = []


def count_waits() -> None:
    """From now on the time that launches are waited for is noted."""
    plain = StagedLaunch.token_ids

    def timed(self: StagedLaunch) -> object:
        started_s = time.perf_counter()
        ids = plain(self)
        waited.append(time.perf_counter() - started_s)
        return ids

    StagedLaunch.token_ids = timed  # type: ignore[assignment, method-assign]


def play(
    runner: ModelRunner, batch: int, num_steps: int, context_tokens: int = CONTEXT_TOKENS
) -> Clock:
    scheduler = Scheduler(scheduler_config(runner.config, hash_key=bytes(16)))
    clock = Clock(batch, num_steps, context_tokens)
    board = Board(stats=scheduler.stats(), full_step_s=1.0)
    clock.loop = Loop(scheduler, runner, clock, board, overlap=runner.config.overlap)
    clock.loop.run()
    if runner.config.device == "cuda":
        torch.cuda.synchronize()
    return clock


def measure(
    runner: ModelRunner, name: str, batch: int, args: argparse.Namespace
) -> dict[str, float]:
    """Print a batch's figures; those that a bar is about, by its name."""
    play(runner, batch, PROFILED_STEPS, args.context)
    clock = play(runner, batch, args.steps, args.context)
    step_us = (clock.ended_s - clock.started_s) / args.steps * 1e6
    host_us = step_us - sum(waited) / len(waited) * 1e6
    alone_us = replay_us(runner, batch, args.context + args.steps)
    print(
        f"{name} batch={batch} context={args.context} step_us={step_us:.0f} "
        f"replay_us={alone_us:.0f} host_us={host_us:.0f} "
        f"tokens_s_user={1e6 / step_us:.1f}",
        flush=True,
    )
    if args.device == "cuda" and not args.no_profile:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            play(runner, batch, PROFILED_STEPS, args.context)
        print_kernels(profiled)
    return {f"host_us_per_step_b{batch}": host_us}


def replay_us(runner: ModelRunner, batch: int, longest_tokens: int) -> float:
    """Of the captured step alone, one after the other; what a step takes more is between steps."""
    staged = runner._staged
    if staged is None or runner.config.device != "cuda":
        return float("nan")
    captured = staged._model.captured_for([Size(batch, batch, batch, longest_tokens)])
    assert captured is not None
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(NUM_STEPS):
        captured.whole.replay()
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / NUM_STEPS * 1e3


def print_kernels(profiled: profile) -> None:
    """The device's time by kernel, longest first; the prompts' kernels are among them."""
    kernels = sorted(profiled.key_averages(), key=lambda e: -e.self_device_time_total)
    print("  us per step  launches  kernel")
    for kernel in kernels[:26]:
        us, num = kernel.self_device_time_total / PROFILED_STEPS, kernel.count / PROFILED_STEPS
        print(f"  {us:11.1f}  {num:8.1f}  {kernel.key[:90]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", nargs="?", default="qwen3_8b", choices=sorted(SHAPES))
    parser.add_argument("batches", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--overlap", type=int, default=1)
    parser.add_argument("--context", type=int, default=CONTEXT_TOKENS)
    parser.add_argument("--block-size", type=int, default=CacheConfig().block_tokens)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--json", type=Path, help="where to keep what bars are about")
    args = parser.parse_args()
    changes = {} if args.layers is None else {"num_hidden_layers": args.layers}
    count_waits()
    with tempfile.TemporaryDirectory() as parent:
        folder = write_model(args.shape, Path(parent), **changes)
        started_s = time.perf_counter()
        runner = ModelRunner.load(
            EngineConfig(
                model=ModelConfig(model=str(folder), load_format="dummy"),
                cache=CacheConfig(block_tokens=args.block_size),
                scheduler=SchedulerConfig(
                    max_num_requests=16,
                    max_model_tokens=args.context + 2 * MAX_STEPS,
                    overlap=args.overlap,
                ),
                device=args.device,
            )
        )
        print(f"{args.shape} loaded in {time.perf_counter() - started_s:.1f} s", flush=True)
        measured: dict[str, float] = {}
        for batch in args.batches:
            measured |= measure(runner, args.shape, batch, args)
    if args.json is not None:
        args.json.write_text(json.dumps({"measured": measured}, indent=1))


if __name__ == "__main__":
    main()
