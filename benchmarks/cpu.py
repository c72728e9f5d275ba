# SPDX-License-Identifier: Apache-2.0
"""The CPU engine beside llama.cpp: same model files, same threads, interleaved, best of three.

A speed's floor follows from the run: so many times the peer's, or a share of what the memory's
bandwidth, read in the same run, allows. Its bar is the speed over that floor.

python -m benchmarks.cpu [--only NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from benchmarks import cpu_peer
from benchmarks.bars import Bar, report
from benchmarks.cpu_agent import ttft_over_peer
from benchmarks.cpu_exact import greedy_equal, perplexity_over_f32, row_differences
from benchmarks.cpu_steps import Steps, read_bytes_per_s
from benchmarks.served import serve
from benchmarks.slice import KV_BYTES, fill_kv_pool, ready_over_import_torch_s
from tests.models.tiny import write_tiny_llama
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model
from tokenlight.kernels import set_num_threads
from tokenlight.runner.machine import read_machine

ROUNDS = 3
DEPTH = 4096
DECODE_STEPS = 48


@dataclass(frozen=True, slots=True)
class Speed:
    """A prefill or decode of one request, and what it must reach."""

    model: str
    prompt: int = 0
    answer: int = 0
    depth: int = 0
    times_peer: float = 0.0
    """So many times llama.cpp's speed ..."""
    bandwidth_share: float = 0.0
    """... or this share of bandwidth / bytes read, where both are given: the lesser."""


SPEEDS = {
    "smol_decode": Speed("smol", answer=DECODE_STEPS, times_peer=2.0, bandwidth_share=0.80),
    "smol_decode_4k": Speed(
        "smol", answer=DECODE_STEPS, depth=DEPTH, times_peer=2.5, bandwidth_share=0.75
    ),
    "smol_prefill_512": Speed("smol", prompt=512, times_peer=4.0),
    "smol_prefill_2048": Speed("smol", prompt=2048, times_peer=4.0),
    "smol_prefill_4k_depth": Speed("smol", prompt=512, depth=DEPTH, times_peer=3.0),
    "q4km_decode": Speed("Q4_K_M", answer=DECODE_STEPS, bandwidth_share=0.88),
    "q8_0_decode": Speed("Q8_0", answer=DECODE_STEPS, bandwidth_share=0.88),
    "q4km_prefill_512": Speed("Q4_K_M", prompt=512, times_peer=3.0),
    "q8_0_prefill_512": Speed("Q8_0", prompt=512, times_peer=3.0),
}
BARS = [
    *(Bar(name, ">=", 1.0) for name in SPEEDS),
    Bar("smol_batch8_over_batch1", ">=", 4.0),
    Bar("int8_kv_decode_4k_over_f16", ">=", 1.2),
    Bar("agent_loop_ttft_turn2", "<=", 1 / 3),
    Bar("ready_over_import_torch_s", "<=", 2.0),
    Bar("rss_over_file_plus_kv_mb", "<=", 450),
    Bar("perplexity_over_f32", "<=", 1.005),
    Bar("greedy_first16_equal_f32_of_20", ">=", 18),
    Bar("row_invariance_differences", "==", 0),
]

OF_TORCH = ("perplexity_over_f32", "greedy_first16_equal_f32_of_20")
"""Bars whose other side torch computes."""


@dataclass
class Bench:
    """What several bars need: made once, when the first asks."""

    folder: Path
    steps: dict[str, Steps] = field(default_factory=dict)

    @cached_property
    def smol(self) -> Path:
        return fetch_default_model(read_env().cache_dir)

    @cached_property
    def random_f16(self) -> Path:
        """0.35B parameters, hidden size 1024; random, so that its speed is all that it has."""
        return write_tiny_llama(
            self.folder / "random.gguf",
            format="F16",
            tied=False,
            tokenizer=True,
            vocab_size=32000,
            hidden_size=1024,
            layers=28,
            heads=16,
            kv_heads=8,
            context=8192,
        )

    def path(self, model: str) -> Path:
        if model == "smol":
            return self.smol
        target = self.folder / f"{model}.gguf"
        return target if target.exists() else cpu_peer.quantize(self.random_f16, target, model)

    def of(self, model: str) -> Steps:
        if model not in self.steps:
            self.steps[model] = Steps(self.path(model))
        return self.steps[model]


def measure_speed(bench: Bench, name: str, num_threads: int) -> float:
    """Our speed over the floor."""
    speed = SPEEDS[name]
    steps, path = bench.of(speed.model), bench.path(speed.model)
    ours, theirs, bandwidth = 0.0, 0.0, 0.0
    for _ in range(ROUNDS):
        bandwidth = max(bandwidth, read_bytes_per_s())
        if speed.prompt:
            ours = max(ours, steps.prefill_tokens_per_s(speed.prompt, speed.depth))
        else:
            ours = max(ours, steps.decode_tokens_per_s(speed.answer, depth=speed.depth))
        theirs = max(
            theirs,
            cpu_peer.tokens_per_s(
                path, num_threads, prompt=speed.prompt, answer=speed.answer, depth=speed.depth
            ),
        )
    floors = []
    if speed.times_peer:
        floors.append(speed.times_peer * theirs)
    if speed.bandwidth_share:
        depth = speed.depth + speed.answer / 2
        read_bytes = steps.read_bytes + depth * steps.kv_bytes_per_token
        floors.append(speed.bandwidth_share * bandwidth / read_bytes)
    print(
        f"{name}: ours {ours:.1f} tokens/s, llama.cpp {theirs:.1f} ({ours / theirs:.2f} times), "
        f"floor {min(floors):.1f}; memory reads {bandwidth / 1e9:.1f} GB/s",
        flush=True,
    )
    return ours / min(floors)


def batch8_over_batch1(bench: Bench) -> float:
    """All tokens per second of eight requests over those of one."""
    steps, one, eight = bench.of("smol"), 0.0, 0.0
    for _ in range(ROUNDS):
        one = max(one, steps.decode_tokens_per_s(DECODE_STEPS))
        eight = max(eight, steps.decode_tokens_per_s(DECODE_STEPS, num_requests=8))
    print(f"smol_batch8_over_batch1: {eight:.1f} tokens/s over {one:.1f}", flush=True)
    return eight / one


def int8_kv_over_f16(bench: Bench) -> float:
    """Decode at depth with keys and values in int8, over float16."""
    half, eighth = 0.0, 0.0
    quarter = Steps(bench.smol, torch.int8)
    for _ in range(ROUNDS):
        half = max(half, bench.of("smol").decode_tokens_per_s(DECODE_STEPS, depth=DEPTH))
        eighth = max(eighth, quarter.decode_tokens_per_s(DECODE_STEPS, depth=DEPTH))
    return eighth / half


def rss_over_file_plus_kv_mb(bench: Bench) -> float:
    """What a server's processes hold beyond the file and a pool that was used up."""
    with serve(str(bench.smol), "--kv-cache-memory-bytes", str(KV_BYTES)) as server:
        fill_kv_pool(server)
        return (server.rss_bytes() - bench.smol.stat().st_size - KV_BYTES) / 1e6


def measures(bench: Bench, num_threads: int) -> Mapping[str, Callable[[], float]]:
    return {
        **{name: lambda name=name: measure_speed(bench, name, num_threads) for name in SPEEDS},  # type: ignore[misc]
        "smol_batch8_over_batch1": lambda: batch8_over_batch1(bench),
        "int8_kv_decode_4k_over_f16": lambda: int8_kv_over_f16(bench),
        "agent_loop_ttft_turn2": lambda: ttft_over_peer(bench.smol, num_threads),
        "ready_over_import_torch_s": lambda: ready_over_import_torch_s(str(bench.smol)),
        "rss_over_file_plus_kv_mb": lambda: rss_over_file_plus_kv_mb(bench),
        "perplexity_over_f32": lambda: perplexity_over_f32(bench.smol),
        "greedy_first16_equal_f32_of_20": lambda: float(greedy_equal(bench.smol)),
        "row_invariance_differences": lambda: float(row_differences(bench.smol)),
    }


def main() -> int:
    """Measure the bars that are asked for, or all, and report them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[bar.name for bar in BARS])
    args = parser.parse_args()
    wanted = args.only or [bar.name for bar in BARS]
    num_threads = read_machine().num_cores
    set_num_threads(num_threads)
    measured: dict[str, float] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench-cpu-") as folder:
        by_name = measures(Bench(Path(folder)), num_threads)
        for name in wanted:
            # As the engine does: torch's threads spin on a core that the kernels' need.
            torch.set_num_threads(num_threads if name in OF_TORCH else 1)
            try:
                measured[name] = by_name[name]()
            except (cpu_peer.PeerMissing, RuntimeError, OSError, ValueError) as error:
                missing[name] = f"{type(error).__name__}: {error}"
    return report([bar for bar in BARS if bar.name in wanted], measured, missing)


if __name__ == "__main__":
    sys.exit(main())
