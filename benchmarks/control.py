# SPDX-License-Identifier: Apache-2.0
"""What a step of scheduling costs, beside the reference C++ scheduler in the same run.

    make bench-control          (needs g++, valgrind, and an environment with the peer)

The peer is PyPI tokenspeed-scheduler 0.1.42, in an environment of its own (default .venv-peers, or
--peer-python). Both are driven through their Python face; instructions are counted by callgrind on
csrc/tests/control_bench.cc, so that they do not depend on how busy the machine is. Prints a BAR
line for each figure and exits with 1 when one is missing or missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.bars import Bar, ratio_of_medians, report
from tokenlight.control import Scheduler, SchedulerConfig

ROOT = Path(__file__).parents[1]
BLOCK_TOKENS = 64
NUM_REQUESTS = 64
ROUNDS = 3

BARS = [
    Bar("step_64x64k_vs_peer", ">=", 80),
    Bar("step_64x1k_vs_peer", ">=", 4),
    Bar("instr_64x64k_over_64x1k", "<=", 1.1),
    Bar("instr_evict_1m_over_1k_blocks", "<=", 1.2),
    Bar("evict_us_at_1m_blocks", "<=", 1),
    Bar("instr_64_blocked_prompts_over_none", "<=", 1.01),
    Bar("admit_100k_99k_cached_ms_in_1m_index", "<=", 1.0),
    Bar("admit_over_chained_hash", "<=", 12),
    Bar("bytes_per_block", "<=", 400),
    Bar("alloc_per_steady_step", "<=", 0),
]


def our_step_us(context_tokens: int, num_steps: int = 200) -> float:
    """Median of plan, every array of the plan, and commit, for 64 requests that decode."""
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=NUM_REQUESTS * (context_tokens // BLOCK_TOKENS + 80) + 2000,
            block_tokens=BLOCK_TOKENS,
            max_num_requests=NUM_REQUESTS,
            max_step_tokens=8192,
            max_model_tokens=context_tokens + 4096,
            hash_key=bytes(range(16)),
        )
    )
    tokens = np.arange(context_tokens, dtype=np.int64) * 104_729
    for i in range(NUM_REQUESTS):
        prompt = ((i * 7919 + tokens) % 150_000).astype(np.int32)
        scheduler.submit(i, prompt, max_new_tokens=4096)
    sampled = np.full(NUM_REQUESTS, 7, np.int32)
    is_decode = False
    while not is_decode:
        plan = scheduler.plan(0)
        assert plan is not None
        is_decode = plan.num_tokens == plan.num_sampled == NUM_REQUESTS
        scheduler.commit(plan.guard, sampled[: plan.num_sampled])
    steps_us = []
    for _ in range(num_steps):
        start = time.perf_counter()
        plan = scheduler.plan(0)
        assert plan is not None
        _ = (plan.request_ids, plan.slots, plan.token_ids, plan.positions, plan.query_starts)
        _ = (plan.kv_lens, plan.sampled_rows, plan.block_table)
        scheduler.commit(plan.guard, sampled)
        steps_us.append((time.perf_counter() - start) * 1e6)
    return median(steps_us)


def peer_step_us(python: Path, context_tokens: int) -> float:
    numbers = [context_tokens, NUM_REQUESTS, BLOCK_TOKENS, 60]
    command = [str(python), str(ROOT / "benchmarks" / "control_peer.py"), *map(str, numbers)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(output)["step_us"])


def build(folder: Path) -> Path:
    program = folder / "control_bench"
    sources = [ROOT / "csrc/tests/control_bench.cc", *sorted((ROOT / "csrc/control").glob("*.cc"))]
    flags = ["-std=c++20", "-O3", "-DNDEBUG", f"-I{ROOT / 'csrc'}", "-o", str(program)]
    subprocess.run(["g++", *flags, *map(str, sources)], check=True)
    return program


def figures(program: Path, *arguments: object) -> dict[str, float]:
    command = [str(program), *map(str, arguments)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def instructions(program: Path, measured: str, *arguments: object) -> int:
    """Instructions of the function `measured` and what it calls."""
    command = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--collect-atstart=no",
        f"--toggle-collect=*{measured}*",
        str(program),
        *map(str, arguments),
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (count,) = re.findall(r"Collected : (\d+)", output)
    return int(count)


def measure_own(program: Path) -> dict[str, float]:
    steps = ("steps", 1024, NUM_REQUESTS, 0, 64)
    base = instructions(program, "MeasuredSteps", *steps)
    long = instructions(program, "MeasuredSteps", "steps", 65536, NUM_REQUESTS, 0, 64)
    blocked = instructions(program, "MeasuredSteps", "steps", 1024, NUM_REQUESTS, 64, 64)
    evict_small = instructions(program, "MeasuredEvictions", "evict", 1000, 1000)
    evict_large = instructions(program, "MeasuredEvictions", "evict", 1_000_000, 1000)
    admit = figures(program, "admit")
    evict_us = [figures(program, "evict", 1_000_000, 10_000)["evict_us"] for _ in range(ROUNDS)]
    return {
        "instr_64x64k_over_64x1k": long / base,
        "instr_evict_1m_over_1k_blocks": evict_large / evict_small,
        "evict_us_at_1m_blocks": median(evict_us),
        "instr_64_blocked_prompts_over_none": blocked / base,
        "admit_100k_99k_cached_ms_in_1m_index": admit["admit_ms"],
        "admit_over_chained_hash": admit["admit_ms"] / admit["hash_ms"],
        "bytes_per_block": figures(program, "bytes", 1_000_000)["bytes_per_block"],
        "alloc_per_steady_step": figures(program, *steps)["allocations_per_step"],
    }


def measure_beside_peer(python: Path, measured: dict[str, float], missing: dict[str, str]) -> None:
    for name, context_tokens in (("step_64x1k_vs_peer", 1024), ("step_64x64k_vs_peer", 65536)):
        ours, peer = [], []
        for _ in range(ROUNDS):
            ours.append(our_step_us(context_tokens))
            try:
                peer.append(peer_step_us(python, context_tokens))
            except (OSError, subprocess.CalledProcessError) as error:
                missing[name] = f"no peer: {error}"
                break
        print(f"{name}: ours {median(ours):.1f} us, peer {median(peer or [0]):.1f} us per step")
        if name not in missing:
            measured[name] = ratio_of_medians(peer, ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", type=Path, default=ROOT / ".venv-peers/bin/python")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    print(f"commit {commit or 'unknown'}, {platform.processor() or platform.machine()}")
    measured: dict[str, float] = {}
    missing: dict[str, str] = {}
    measure_beside_peer(arguments.peer_python, measured, missing)
    with tempfile.TemporaryDirectory() as folder:
        measured |= measure_own(build(Path(folder)))
    return report(BARS, measured, missing)


if __name__ == "__main__":
    sys.exit(main())
