# SPDX-License-Identifier: Apache-2.0
"""The front: what stands between a client and the engine's loop, each promise as a BAR line.

    retokenize_seen_100k_over_first   a prompt of 100,000 tokens one turn later, over its first time
    cores_64x70tps                    API process: CPU seconds per second of 64 streams, 70 tokens/s
    front_cpu_ms_to_first_token       API process: CPU of a streamed request up to its first token
    mask_us_median_50k_vocab          one row of logits under a JSON Schema, 49,152 tokens
    ten_turn_hit_rate_gap_blocks_X    X's session: blocks of a turn that the next did not find
    splits_different                  cuts of outputs into deltas that change what is parsed

The sessions run on the real server, scheduler and prefix cache; only the model is a script.
"""

from __future__ import annotations

import argparse
import random
import sys

import torch

from benchmarks.bars import Bar, report
from benchmarks.front_served import measure
from benchmarks.front_sessions import gap_blocks
from benchmarks.front_text import mask_us, retokenize_ratio
from benchmarks.splits import count_different
from tests.recorded.requests import CLIENTS
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model, open_checkpoint
from tokenlight.text import Tokenizer

BARS = [
    Bar("retokenize_seen_100k_over_first", "<=", 0.05),
    Bar("cores_64x70tps", "<=", 0.5),
    Bar("front_cpu_ms_to_first_token", "<=", 1.5),
    Bar("mask_us_median_50k_vocab", "<=", 50),
    *(Bar(f"ten_turn_hit_rate_gap_blocks_{client}", "<=", 1) for client in CLIENTS),
    Bar("splits_different", "==", 0),
]


def main() -> int:
    """Run, print, and exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=1000, help="random splits per format")
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = fetch_default_model(read_env().cache_dir)
    checkpoint = open_checkpoint(path)
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    measured = {
        "retokenize_seen_100k_over_first": retokenize_ratio(checkpoint),
        "mask_us_median_50k_vocab": mask_us(tokenizer),
    }
    for client in CLIENTS:
        gap = gap_blocks(client, tokenizer)
        measured[f"ten_turn_hit_rate_gap_blocks_{client}"] = gap
    measured["cores_64x70tps"], measured["front_cpu_ms_to_first_token"] = measure(path)
    measured["splits_different"] = count_different(args.random, random.Random(0))
    return report(BARS, measured, {})


if __name__ == "__main__":
    sys.exit(main())
