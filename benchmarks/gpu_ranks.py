# SPDX-License-Identifier: Apache-2.0
"""A model over several GPUs of one host beside the same on one: speed, and how far logits differ.

`python -m benchmarks.gpu_ranks [--tp 1 2] [--step-graphs on off] [--json FILE]`: the Qwen3-8B shape
with dummy weights through AsyncLLM. A rate is measured as in `benchmarks.gpu`. Logits are those of
a prompt's own tokens, as log-probabilities: so both say them of the same text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu import Bench, engine_config
from benchmarks.gpu_models import SHAPES, write_model
from tokenlight.config import EngineConfig, ParallelConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.wire import SamplingParams

PROMPT = [(7919 * i) % 50000 + 100 for i in range(256)]
NUM_NEW = 48


def config_of(folder: Path, tp: int, ep: int, step_graphs: str) -> EngineConfig:
    return replace(
        engine_config(folder),
        scheduler=SchedulerConfig(max_num_requests=16, max_model_tokens=8192),
        parallel=ParallelConfig(tp=tp, ep=ep),
        step_graphs="on" if step_graphs == "on" else "off",
    )


async def said_of(llm: AsyncLLM) -> tuple[list[float], list[int]]:
    """Log-probabilities of a prompt's tokens, and the greedy answer."""
    logprobs: list[float] = []
    ids: list[int] = []
    sampling = SamplingParams(temperature=0.0, num_prompt_logprobs=0)
    async for delta in llm.generate(PROMPT, sampling, request_id="said", max_new_tokens=NUM_NEW):
        logprobs += [each.logprob for each in delta.prompt_logprobs or ()]
        ids += delta.token_ids
    return logprobs, ids


async def measure(config: EngineConfig, shape: str, batches: list[int]) -> dict[str, Any]:
    started_s = time.perf_counter()
    llm = await AsyncLLM.start(config, log_level="info")
    told: dict[str, Any] = {"ready_s": time.perf_counter() - started_s}
    try:
        told["logprobs"], told["ids"] = await said_of(llm)
        bench = Bench(llm, SHAPES[shape]["vocab_size"], {})
        for batch in batches:
            told[f"b{batch}"] = await bench.rate(batch, 512, 150)
        told["prefill_2k_tflops"] = await bench.prefill_tflops(shape, 2048)
    finally:
        await llm.close()
    return told


def compare(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Nats between what two engines say of a prompt; how many greedy tokens are the same."""
    apart = [abs(a - b) for a, b in zip(one["logprobs"], other["logprobs"], strict=True)]
    same = [a == b for a, b in zip(one["ids"], other["ids"], strict=True)]
    return {
        "worst_nats": max(apart),
        "mean_nats": sum(apart) / len(apart),
        "first_same": (*same, False).index(False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="qwen3_8b", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tp", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ep", action="store_true", help="experts by rank, not cut")
    parser.add_argument("--step-graphs", nargs="+", default=["on", "off"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    changes = {} if args.layers is None else {"num_hidden_layers": args.layers}
    told: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as parent:
        last_id = SHAPES[args.shape]["vocab_size"] - 1
        folder = write_model(args.shape, Path(parent), eos_token_id=last_id, **changes)
        for tp, graphs in product(args.tp, args.step_graphs):
            config = config_of(folder, tp, tp if args.ep else 1, graphs)
            name = f"tp{tp}_graphs_{graphs}"
            told[name] = asyncio.run(measure(config, args.shape, args.batches))
            figures = {k: v for k, v in told[name].items() if k not in ("logprobs", "ids")}
            figures |= compare(next(iter(told.values())), told[name])
            print(name, json.dumps(figures), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
