# SPDX-License-Identifier: Apache-2.0
"""Does the way an output is cut into deltas ever change what the parser makes of it?

Cuts every sample output of the tests in two at every place, then outputs of each format at random,
undamaged and damaged, and compares with the uncut output. Prints BAR lines, and what parsing costs.
"""

import argparse
import random
import sys
import time
from dataclasses import replace

from benchmarks.bars import Bar, report
from tests.text.parsing.outputs import ALL, Sample
from tests.text.parsing.splits import cut, make_parser, outcome, random_cut
from tokenlight.text.parsing import TOOL_FORMATS

BARS = [
    Bar("splits_different", "==", 0),
    Bar("parse_plain_mb_per_s", ">=", 5),
    Bar("parse_us_per_delta", "<=", 10),
]
DAMAGE = ["", '"', "\\", "{", "}", "]", "<", "\n", "'", "<|x|>", "</think>", "<tool_call>", "é"]


def damaged(sample: Sample, rng: random.Random) -> Sample:
    text = sample.text
    for _ in range(rng.randint(1, 3)):
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(DAMAGE) + text[place + rng.randint(0, 6) :]
    return replace(sample, text=text, is_cut=rng.random() < 0.3)


def count_different(num_random: int, rng: random.Random) -> int:
    num_different = 0
    for sample in ALL:
        whole = outcome(sample, [sample.text])
        for place in range(len(sample.text) + 1):
            num_different += outcome(sample, cut(sample.text, [place])) != whole
    for name in TOOL_FORMATS:
        samples = [sample for sample in ALL if sample.tools == name]
        start = time.perf_counter()
        for number in range(num_random):
            if number % 8 == 0:  # eight cuts of each output
                sample = rng.choice(samples)
                sample = sample if number % 16 else damaged(sample, rng)
                whole = outcome(sample, [sample.text])
            pieces = random_cut(sample.text, rng)
            if outcome(sample, pieces) != whole:
                num_different += 1
                print(f"different: {sample} cut as {pieces}")
        print(
            f"{name}: {num_random} random splits, {time.perf_counter() - start:.1f} s", flush=True
        )
    return num_different


def plain_cost() -> tuple[float, float]:
    """MB/s of plain text in deltas of a few hundred characters; us per delta of four."""
    text = "The quick brown fox jumps over the lazy dog, and x < y | z.\n\n" * 20_000
    seconds = []
    for size in (512, 4):
        parser = make_parser(Sample("plain", "hermes", "", "qwen3"))
        pieces = cut(text, range(size, len(text), size))
        start = time.process_time()
        for piece in pieces:
            parser.push(piece)
        seconds.append(time.process_time() - start)
    return len(text) / seconds[0] / 1e6, seconds[1] / (len(text) / 4) * 1e6


def main() -> int:
    """Run, print, and exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=100_000, help="random splits per format")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mb_per_s, us_per_delta = plain_cost()
    measured = {
        "splits_different": float(count_different(args.random, random.Random(args.seed))),
        "parse_plain_mb_per_s": mb_per_s,
        "parse_us_per_delta": us_per_delta,
    }
    return report(BARS, measured, {})


if __name__ == "__main__":
    sys.exit(main())
