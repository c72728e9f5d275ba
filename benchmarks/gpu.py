# SPDX-License-Identifier: Apache-2.0
"""The engine on a GPU, through AsyncLLM: scheduled, sampled, delivered. Prints BAR lines and JSON.

`python -m benchmarks.gpu [--json FILE] [--shapes qwen3_8b llama_1b] [--also FILE ...] [--quick]`:
models of known shapes with dummy weights. `--also` adds what `gpu_kernels` and `gpu_step` kept, so
that every bar of the GPU engine has its line here; what nobody measured is missed. A rate is that
of one user: the inverse of the time of a step, from the difference of two runs of different lengths
on the same prompts, which the prefix cache holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.bars import Bar, report
from benchmarks.gpu_fa3 import beside_peer
from benchmarks.gpu_kernels import BARS as KERNEL_BARS
from benchmarks.gpu_models import (
    SHAPES,
    attention_flops,
    flops_per_token,
    write_model,
    write_tokenizer,
)
from benchmarks.gpu_timing import clocks, commit
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.wire import Grammar, SamplingParams

BARS = [
    Bar("qwen3_8b_b1", ">=", 235),
    Bar("qwen3_8b_b4", ">=", 222),
    Bar("qwen3_8b_b16", ">=", 210),
    Bar("qwen3_8b_50k_b1", ">=", 163),
    Bar("qwen3_8b_50k_b4", ">=", 88),
    Bar("llama_1b_b1", ">=", 1150),
    Bar("append_1k_on_50k_ms", "<=", 75),
    Bar("prefill_8k_tflops", ">=", 430),
    Bar("sampled_b1_over_greedy", ">=", 0.95),
    Bar("grammar_b1_over_greedy", ">=", 0.95),
    Bar("ready_s_dummy", "<=", 25),
    Bar("ready_s_dummy_again", "<=", 15),
    Bar("host_us_per_step_b16", "<=", 150),
    *KERNEL_BARS,
]
REPORTED = ("qwen3_30b_a3b_b1", "b1_beside_8k_prefill_worst_gap_ms")
"""Figures that are asked for without a bound."""
# tokens/s/user of vLLM 0.22.1 on one H200, CUDA graphs, its defaults, the same shapes.
PEER = {
    "qwen3_8b_b1": 192, "qwen3_8b_b4": 188, "qwen3_8b_b16": 180,
    "qwen3_8b_50k_b1": 143, "qwen3_8b_50k_b4": 83, "ready_s_dummy": 98,
}  # fmt: skip

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=7)
# Words: thousands of tokens may follow each, none is forced.
BOUND = SamplingParams(temperature=0.0, grammar=Grammar("start: /[a-z]{1,12}( [a-z]{1,12})*/\n"))
LONG_TOKENS = 51200


@dataclass
class Bench:
    """One engine, and what was measured on it."""

    llm: AsyncLLM
    vocab_size: int
    measured: dict[str, float]
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    numbers: count[int] = field(default_factory=count)

    def prompt(self, num_tokens: int) -> list[int]:
        return [self.rng.randrange(100, self.vocab_size) for _ in range(num_tokens)]

    async def run(
        self, prompts: Sequence[Sequence[int]], num_new: int, sampling: SamplingParams = GREEDY
    ) -> float:
        """Seconds until all of them have so many tokens."""
        started_s = time.perf_counter()
        await asyncio.gather(*(self._one(prompt, num_new, sampling) for prompt in prompts))
        return time.perf_counter() - started_s

    async def _one(self, prompt: Sequence[int], num_new: int, sampling: SamplingParams) -> None:
        num_got = 0
        async for delta in self.llm.generate(
            prompt, sampling, request_id=f"bench-{next(self.numbers)}", max_new_tokens=num_new
        ):
            num_got += len(delta.token_ids)
        assert num_got == num_new, f"{num_got} of {num_new} tokens"

    async def rate(
        self, batch: int, context: int, num_steps: int, sampling: SamplingParams = GREEDY
    ) -> float:
        """tokens/s/user, of the best of three runs: each end of the difference at its best."""
        prompts = [self.prompt(context) for _ in range(batch)]
        for prompt in prompts:
            await self.run([prompt], 2)
        await self.run(prompts, 8, sampling)  # what only a first time costs: a grammar, a kernel
        short_s, long_s = [], []
        for _ in range(3):
            short_s.append(await self.run(prompts, 8, sampling))
            long_s.append(await self.run(prompts, 8 + num_steps, sampling))
        return num_steps / (min(long_s) - min(short_s))

    async def prefill_tflops(self, shape: str, num_tokens: int) -> float:
        """Of a prompt that nothing is known of, its first token included."""
        seconds = [await self.run([self.prompt(num_tokens)], 1) for _ in range(3)]
        flops = flops_per_token(shape) * num_tokens + attention_flops(shape, num_tokens)
        return flops / min(seconds) / 1e12

    async def append_ms(self, known_tokens: int, new_tokens: int) -> float:
        """Time to the first token of a turn that adds to a long prompt."""
        known = self.prompt(known_tokens)
        await self.run([known], 2)
        seconds = [await self.run([known + self.prompt(new_tokens)], 1) for _ in range(3)]
        return 1e3 * median(seconds)

    async def worst_gap_ms(self, num_prefill: int) -> float:
        """Between two tokens of a user beside whom a long prompt is computed."""
        gaps_s, last_s = [0.0], None
        prompt = self.prompt(512)
        beside: asyncio.Task[float] | None = None
        async for delta in self.llm.generate(
            prompt, GREEDY, request_id=f"bench-{next(self.numbers)}", max_new_tokens=300
        ):
            now_s = time.perf_counter()
            if beside is not None and last_s is not None:
                gaps_s.append(now_s - last_s)
            last_s = now_s
            if beside is None and delta.num_sampled_tokens >= 50:
                beside = asyncio.create_task(self.run([self.prompt(num_prefill)], 1))
        if beside is not None:
            await beside
        return 1e3 * max(gaps_s)


def engine_config(folder: Path, kv_dtype: str = "auto") -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(model=str(folder), load_format="dummy"),
        cache=CacheConfig(kv_dtype=kv_dtype),
        scheduler=SchedulerConfig(max_num_requests=32, max_model_tokens=60000),
        device="cuda",
    )


async def start(
    folder: Path, shape: str, measured: dict[str, float], name: str, kv_dtype: str = "auto"
) -> Bench:
    """The engine logs where the time to ready went."""
    started_s = time.perf_counter()
    llm = await AsyncLLM.start(engine_config(folder, kv_dtype), log_level="info")
    measured[name] = time.perf_counter() - started_s
    return Bench(llm, SHAPES[shape]["vocab_size"], measured)


async def bench_8b(parent: Path, measured: dict[str, float], *, is_quick: bool) -> None:
    folder = write_model("qwen3_8b", parent, eos_token_id=SHAPES["qwen3_8b"]["vocab_size"] - 1)
    write_tokenizer(folder, SHAPES["qwen3_8b"]["vocab_size"])
    bench = await start(folder, "qwen3_8b", measured, "ready_s_dummy")
    try:
        for batch in (1, 4, 16):
            measured[f"qwen3_8b_b{batch}"] = await bench.rate(batch, 512, 200)
            _say(measured)
        if is_quick:
            return
        sampled = await bench.rate(1, 512, 200, SAMPLED)
        measured["sampled_b1_over_greedy"] = sampled / measured["qwen3_8b_b1"]
        bound = await bench.rate(1, 512, 200, BOUND)
        measured["grammar_b1_over_greedy"] = bound / measured["qwen3_8b_b1"]
        measured["prefill_8k_tflops"] = await bench.prefill_tflops("qwen3_8b", 8192)
        measured["b1_beside_8k_prefill_worst_gap_ms"] = await bench.worst_gap_ms(8192)
        _say(measured)
        for batch in (1, 4):
            measured[f"qwen3_8b_50k_b{batch}"] = await bench.rate(batch, LONG_TOKENS, 100)
        measured["append_1k_on_50k_ms"] = await bench.append_ms(LONG_TOKENS, 1024)
        _say(measured)
    finally:
        await bench.llm.close()
    again = await start(folder, "qwen3_8b", measured, "ready_s_dummy_again")
    await again.llm.close()
    short = await start(folder, "qwen3_8b", measured, "ready_s_dummy_fp8_kv", kv_dtype="fp8")
    try:
        for batch in (1, 4):
            measured[f"qwen3_8b_50k_b{batch}_fp8_kv"] = await short.rate(batch, LONG_TOKENS, 60)
        _say(measured)
    finally:
        await short.llm.close()


async def bench_1b(parent: Path, measured: dict[str, float]) -> None:
    folder = write_model("llama_1b", parent)
    bench = await start(folder, "llama_1b", measured, "ready_s_llama_1b")
    try:
        measured["llama_1b_b1"] = await bench.rate(1, 512, 400)
        measured["llama_1b_b16"] = await bench.rate(16, 512, 200)
    finally:
        await bench.llm.close()
    _say(measured)


async def bench_30b_a3b(parent: Path, measured: dict[str, float]) -> None:
    folder = write_model("qwen3_30b_a3b", parent)
    bench = await start(folder, "qwen3_30b_a3b", measured, "ready_s_qwen3_30b_a3b")
    try:
        measured["qwen3_30b_a3b_b1"] = await bench.rate(1, 512, 200)
    finally:
        await bench.llm.close()
    _say(measured)


def _say(measured: dict[str, float]) -> None:
    print(json.dumps({name: round(value, 4) for name, value in measured.items()}))
    print(f"clocks: {clocks()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    shapes = ["qwen3_8b", "llama_1b", "qwen3_30b_a3b"]
    parser.add_argument("--shapes", nargs="+", default=shapes, choices=shapes)
    parser.add_argument("--also", nargs="*", type=Path, default=[])
    parser.add_argument("--quick", action="store_true", help="short contexts only")
    args = parser.parse_args()
    measured: dict[str, float] = {}
    missing: dict[str, str] = {}
    print(f"commit {commit()}, clocks before: {clocks()}", flush=True)
    with tempfile.TemporaryDirectory() as parent:
        for shape in args.shapes:
            try:
                if shape == "llama_1b":
                    asyncio.run(bench_1b(Path(parent), measured))
                elif shape == "qwen3_30b_a3b":
                    asyncio.run(bench_30b_a3b(Path(parent), measured))
                else:
                    asyncio.run(bench_8b(Path(parent), measured, is_quick=args.quick))
            except Exception as fault:  # what was measured before is worth keeping
                why = f"{shape}: {type(fault).__name__}: {fault}"[:200]
                missing |= dict.fromkeys(bars_of(shape), why)
                print(why, flush=True)
    measured |= also(args.also)
    print(f"clocks after: {clocks()}")
    if args.json is not None:
        args.json.write_text(json.dumps({"measured": measured, "peer": PEER}, indent=1))
    for name, theirs in PEER.items():
        if name in measured:
            print(f"{name}: {measured[name]:.1f}, vLLM {theirs}")
    return report_all(measured, missing)


def bars_of(shape: str) -> list[str]:
    """Of the names of bars, those that a shape's run measures; most are of the 8B model."""
    others = {bar.name for bar in KERNEL_BARS} | {"host_us_per_step_b16"}
    owners = {b.name: "llama_1b" if b.name.startswith("llama") else "qwen3_8b" for b in BARS}
    return [name for name, owner in owners.items() if owner == shape and name not in others]


def also(files: Sequence[Path]) -> dict[str, float]:
    """What other benches kept; a file that is not there says nothing, and its bars are missed."""
    found: dict[str, float] = {}
    for file in files:
        if file.exists():
            found |= json.loads(file.read_text())["measured"]
    return found


def report_all(measured: dict[str, float], missing: dict[str, str]) -> int:
    """A line for every bar, and for every figure that has none; 1 if one is missed or missing."""
    for name in REPORTED:
        value = measured.get(name)
        print(f"REPORTED {name} {'none (not measured)' if value is None else f'{value:.4g}'}")
    others = {bar.name: "not among the --also files" for bar in KERNEL_BARS}
    others["host_us_per_step_b16"] = "not among the --also files"
    bars, held, unheld = beside_peer(BARS, measured)
    is_missed = report(bars, held, {**missing, **others, **unheld})
    return 1 if is_missed or any(name not in measured for name in REPORTED) else 0


if __name__ == "__main__":
    sys.exit(main())
