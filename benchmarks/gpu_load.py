# SPDX-License-Identifier: Apache-2.0
"""Minutes of mixed random load on one engine: no error, every answer as asked for, nothing leaks.

`python -m benchmarks.gpu_load [SHAPE] [--seconds 300] [--device cpu] [--seed N]`: users with
conversations of their own ask, read and go on, or leave in the middle. Dummy weights, so it is not
the words that are checked: counts of tokens, ends, log-probabilities, the same answer to the same
greedy question, and the memory and blocks that are held when nobody asks any more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_models import SHAPES, write_model, write_tokenizer
from tokenlight.base.errors import Overloaded
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.wire import Delta, Grammar, SamplingParams

GREEDY = SamplingParams(temperature=0.0)
LETTERS = Grammar("start: /[a-z]{1,12}( [a-z]{1,12})*/\n")
# Of the memory that is held when half of the load is over: what may be added until its end.
MOST_GROWTH = 0.02
MOST_GROWTH_BYTES = 32 << 20


@dataclass
class Load:
    """What is asked, and what came of it."""

    llm: AsyncLLM
    rng: random.Random
    vocab_size: int
    max_tokens: int
    """Of a prompt and its answer."""
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    num_asked: int = 0

    def sampling(self) -> SamplingParams:
        rng = self.rng
        seeded = SamplingParams(temperature=rng.uniform(0.1, 1.5), seed=rng.randrange(1 << 31))
        changed = [
            {},
            {"top_k": rng.randrange(1, 100), "top_p": rng.uniform(0.3, 1.0)},
            {"min_p": rng.uniform(0.0, 0.3), "repetition_penalty": rng.uniform(1.0, 1.4)},
            {"frequency_penalty": 0.5, "presence_penalty": 0.5, "logit_bias": {5: 3.0}},
            {"num_logprobs": rng.randrange(5)},
            {"num_prompt_logprobs": rng.randrange(3), "temperature": 0.0},
            {"grammar": LETTERS},
            {"temperature": 0.0},
        ]
        fields = {name: getattr(seeded, name) for name in seeded.__struct_fields__}
        return SamplingParams(**{**fields, **rng.choice(changed)})

    async def user(self, number: int, until_s: float) -> None:
        """A conversation that grows, and begins anew when it is long."""
        said = self.tokens(self.rng.randrange(1, self.max_tokens // 2))
        turn = 0
        while time.monotonic() < until_s:
            num_new = self.rng.choice((1, 8, 40, 120))
            if len(said) + num_new + 64 > self.max_tokens:
                said = self.tokens(self.rng.randrange(1, self.max_tokens // 2))
            answer = await self.ask(f"u{number}-{turn}", said, num_new)
            said = said + answer + self.tokens(self.rng.randrange(1, 48))
            turn += 1
            await asyncio.sleep(self.rng.expovariate(20))

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(3, self.vocab_size - 20) for _ in range(count)]

    async def ask(self, name: str, prompt: list[int], num_new: int) -> list[int]:
        sampling = self.sampling()
        stops = [self.rng.randrange(self.vocab_size)] if self.rng.random() < 0.2 else []
        patience_s = self.rng.expovariate(3) if self.rng.random() < 0.15 else 120.0
        self.num_asked += 1
        deltas: list[Delta] = []
        try:
            stream = self.llm.generate(
                prompt, sampling, request_id=name, max_new_tokens=num_new, stop_token_ids=stops
            )
            async with asyncio.timeout(patience_s), aclosing(stream):
                async for delta in stream:
                    deltas.append(delta)
        except TimeoutError:
            self.ends["left"] += 1
            if patience_s == 120.0:
                self.faults.append(f"{name}: no end within {patience_s:.0f} s")
            return [t for delta in deltas for t in delta.token_ids]
        except Overloaded:
            self.ends["overloaded"] += 1
            return []
        except Exception as fault:  # the load goes on; what failed is told at its end
            self.faults.append(f"{name}: {type(fault).__name__}: {fault}"[:200])
            return []
        answer = [t for delta in deltas for t in delta.token_ids]
        self.ends[deltas[-1].finish_reason or "none"] += 1
        self.faults += [f"{name}: {what}" for what in wrongs(deltas, prompt, num_new, sampling)]
        if any(not 0 <= token < self.vocab_size for token in answer):
            self.faults.append(f"{name}: a token that the vocabulary has not")
        return answer


def wrongs(
    deltas: list[Delta], prompt: list[int], num_new: int, sampling: SamplingParams
) -> list[str]:
    """What of an answer is not as it was asked for."""
    found = []
    num_told = sum(len(delta.token_ids) for delta in deltas)
    last = deltas[-1]
    if last.finish_reason == "length" and num_told != num_new:
        found.append(f"{num_told} tokens of {num_new}")
    if last.finish_reason == "stop" and last.num_sampled_tokens > num_new:
        found.append(f"stopped after {last.num_sampled_tokens} tokens of {num_new}")
    if last.finish_reason not in ("length", "stop"):
        found.append(f"ended by {last.finish_reason}")
    if sampling.num_logprobs is not None:
        told = [one for delta in deltas for one in delta.logprobs or []]
        if len(told) != num_told or any(one.logprob > 1e-3 for one in told):
            found.append(f"{len(told)} log-probabilities for {num_told} tokens, or positive ones")
    num_prompt = len(deltas[0].prompt_logprobs or [])
    if sampling.num_prompt_logprobs is not None and num_prompt != len(prompt) - 1:
        found.append(f"{num_prompt} log-probabilities of a prompt of {len(prompt)}")
    return found


async def run(args: argparse.Namespace, folder: Path) -> int:
    rng = random.Random(args.seed)
    llm = await AsyncLLM.start(engine_config(folder, args))
    load = Load(llm, rng, SHAPES[args.shape]["vocab_size"], args.context)
    held: list[dict[str, int]] = []
    try:
        question = load.tokens(min(200, args.context // 2))
        before = await one_answer(llm, "before", question)
        started_s = time.monotonic()
        for half in (1, 2):
            until_s = started_s + half * args.seconds / 2
            users = [load.user(half * 1000 + n, until_s) for n in range(args.users)]
            await asyncio.gather(*users)
            await at_rest(llm, load.faults)
            held.append(held_bytes(llm.pid))
        if await one_answer(llm, "after", question) != before:
            load.ends["another answer"] += 1
            if args.device == "cpu":  # a GPU's tuned kernels promise it of the same steps only
                load.faults.append("the same question has another answer after the load")
        status = llm.status()
    finally:
        await llm.close()
    if not args.ignore_memory:
        load.faults += grown(*held)
    if status.num_failed:
        load.faults.append(f"the engine counts {status.num_failed} failed requests")
    told = {
        "asked": load.num_asked,
        "ends": dict(load.ends),
        "steps": status.num_steps,
        "sampled_tokens": status.num_sampled_tokens,
        "cached_tokens": status.num_cached_tokens,
        "preemptions": status.num_preemptions,
        "held_bytes": held,
        "faults": load.faults[:20],
    }
    print(json.dumps(told, indent=1), flush=True)
    print(f"LOAD {args.seconds:.0f} s seed {args.seed}: {len(load.faults)} faults")
    return 1 if load.faults else 0


def engine_config(folder: Path, args: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(model=str(folder), load_format="dummy"),
        cache=CacheConfig(kv_cache_bytes=args.kv_cache_bytes, kv_dtype=args.kv_cache_dtype),
        scheduler=SchedulerConfig(max_num_requests=16, max_model_tokens=args.context),
        device=args.device,
        num_threads=1 if args.device == "cpu" else None,
    )


async def one_answer(llm: AsyncLLM, name: str, prompt: list[int]) -> list[int]:
    stream = llm.generate(prompt, GREEDY, request_id=name, max_new_tokens=8)
    return [token async for delta in stream for token in delta.token_ids]


async def at_rest(llm: AsyncLLM, faults: list[str]) -> None:
    """Wait until heartbeats say that all is given back."""
    for _ in range(100):
        status = llm.status()
        is_idle = not (status.num_running or status.num_waiting or llm.num_unfinished)
        if is_idle and status.num_free_blocks == status.num_blocks:
            return
        await asyncio.sleep(0.1)
    faults.append(
        f"at rest {status.num_running} run, {status.num_waiting} wait, "
        f"{status.num_blocks - status.num_free_blocks} blocks are held"
    )


def held_bytes(pid: int) -> dict[str, int]:
    """Of the engine's process: resident, and on the GPU as its driver tells."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    held = {"resident": pages * os.sysconf("SC_PAGE_SIZE")}
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        held["gpu"] = sum(int(line) << 20 for line in told.split())
    except (OSError, subprocess.CalledProcessError, ValueError):
        pass  # no GPU here
    return held


def grown(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What is held at the end and was not in the middle."""
    return [
        f"{kind} memory grew from {before[kind]} to {after[kind]} bytes"
        for kind in before
        if after[kind] - before[kind] > max(MOST_GROWTH_BYTES, MOST_GROWTH * before[kind])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", nargs="?", default="tiny", choices=sorted(SHAPES))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--kv-cache-bytes", type=int, help="little of it: requests are preempted")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--ignore-memory", action="store_true", help="it may grow: a tool that watches takes some"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        end = SHAPES[args.shape]["vocab_size"] - 1
        folder = write_model(args.shape, Path(parent), eos_token_id=end)
        write_tokenizer(folder, SHAPES[args.shape]["vocab_size"])
        return asyncio.run(run(args, folder))


if __name__ == "__main__":
    sys.exit(main())
