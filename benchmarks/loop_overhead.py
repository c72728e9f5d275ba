# SPDX-License-Identifier: Apache-2.0
"""What the engine's loop costs per step beside the forward and the sampling kernel.

The real loop, scheduler, batch and sockets; the model gives the same logits at no cost. Prints
microseconds of the loop's thread per step, so that other work on the machine does not count:
`python -m benchmarks.loop_overhead [BATCH ...]`.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import zmq

from tests.models.tiny import write_tiny_llama
from tokenlight import kernels, wire
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.control import Scheduler
from tokenlight.engine.heartbeat import Board
from tokenlight.engine.loop import Loop
from tokenlight.engine.mail import Mailbox
from tokenlight.runner import ModelRunner, scheduler_config

NUM_STEPS = 2000
PROMPT_TOKENS = 100
WARMUP_STEPS = 50


class Stopwatch:
    """Time spent in wrapped calls, by name."""

    def __init__(self) -> None:
        self.total_s: dict[str, float] = defaultdict(float)

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start_s = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.total_s[name] += time.thread_time() - start_s

        return timed


class Wrapped:
    """An object some of whose methods are timed."""

    def __init__(self, inner: Any, watch: Stopwatch, *names: str) -> None:
        self._inner = inner
        for name in names:
            setattr(self, name, watch.wrap(name, getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def measure(runner: ModelRunner, batch: int, folder: str) -> None:
    """Decode `batch` requests for NUM_STEPS steps and print where the time went."""
    context = zmq.Context()
    inbox, outbox = f"ipc://{folder}/in", f"ipc://{folder}/out"
    to_engine, from_engine = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    from_engine.setsockopt(zmq.RCVHWM, 0)
    to_engine.bind(inbox)
    from_engine.bind(outbox)
    mail = Mailbox(context, inbox=inbox, outbox=outbox)
    for index in range(batch):
        to_engine.send(
            wire.encode(
                wire.Generate(
                    request_id=f"chatcmpl-0123456789abcdef-{index}",
                    prompt_token_ids=wire.pack_token_ids([index] * PROMPT_TOKENS),
                    sampling=wire.SamplingParams(temperature=0.0),
                    max_new_tokens=NUM_STEPS,
                )
            )
        )
    time.sleep(0.2)
    watch, sample = Stopwatch(), kernels.sample
    kernels.sample = watch.wrap("sample", sample)  # type: ignore[assignment]
    config = dataclasses.replace(runner.config, max_step_tokens=batch * PROMPT_TOKENS + 64)
    scheduler = Scheduler(scheduler_config(config, hash_key=bytes(16)))
    logits_SV = torch.randn(batch, 512)
    runner._model = watch.wrap("forward", lambda step: logits_SV[: len(step.sampled_rows)])  # type: ignore[assignment]
    loop: Any = Loop(
        Wrapped(scheduler, watch, "plan", "commit", "stats"),  # type: ignore[arg-type]
        Wrapped(runner, watch, "launch"),  # type: ignore[arg-type]
        Wrapped(mail, watch, "read", "send"),  # type: ignore[arg-type]
        Board(stats=scheduler.stats(), full_step_s=1.0),
        overlap=config.overlap,
    )
    drain, steps, start_s = loop._drain, 0, 0.0

    def counted(*, wait: bool) -> bool:
        nonlocal steps, start_s
        steps += 1
        if steps == WARMUP_STEPS:
            watch.total_s.clear()
            start_s = time.thread_time()
        return bool(drain(wait=wait)) and steps < NUM_STEPS

    loop._drain = counted
    loop.run()
    total_us = (time.thread_time() - start_s) / (steps - WARMUP_STEPS) * 1e6
    parts = {n: s / (steps - WARMUP_STEPS) * 1e6 for n, s in watch.total_s.items()}
    own_us = total_us - parts["forward"] - parts["sample"]
    print(
        f"batch={batch} loop_overhead_us={own_us:.0f} step_us={total_us:.0f} "
        + " ".join(f"{name}_us={us:.1f}" for name, us in sorted(parts.items()))
    )
    kernels.sample = sample
    mail.close()
    context.destroy(linger=0)


def main() -> None:
    batches = [int(argument) for argument in sys.argv[1:]] or [1, 8, 32]
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_llama(Path(folder) / "tiny.gguf", context=4096)
        runner = ModelRunner.load(EngineConfig(model=ModelConfig(model=str(path)), num_threads=1))
        for batch in batches:
            measure(runner, batch, folder)


if __name__ == "__main__":
    main()
