# SPDX-License-Identifier: Apache-2.0
"""A prompt's attention in CUDA, and in Triton with other tiles: which is the fastest on this GPU.

`python -m benchmarks.gpu_prefill [--json FILE]`: heads of Qwen3-8B; each way is compared with
float64 for some queries before it is timed. What wins goes to `paged_attention/tiles.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu_timing import clocks, relative_error, time_graph

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 32, 8, 128, 16
# bf16 products of 8192 x 8192 on an H200, and FA3 on the same lengths there: TFLOP/s, recorded.
CEILING = 790.0
FA3 = {"append 1K on 50K": 646.0, "append 4K on 50K": 640.0, "prefill 8K": 682.0}
LENGTHS = {
    "append 1K on 50K": (1024, 51_200),
    "append 4K on 50K": (4096, 51_200),
    "prefill 512": (512, 0),
    "prefill 2K": (2048, 0),
    "prefill 8K": (8192, 0),
}
CHECKED_QUERIES = 5
DEVICE = "cuda"


class Prompt:
    """New tokens of one request on tokens that are in the cache, in blocks of any order."""

    def __init__(self, num_new: int, num_before: int, dtype: torch.dtype) -> None:
        kv_len = num_new + num_before
        num_blocks = -(-kv_len // BLOCK)
        shape = (num_blocks, KV_HEADS, BLOCK, HEAD_DIM)
        self.q = torch.randn(num_new, HEADS, HEAD_DIM, device=DEVICE, dtype=torch.bfloat16)
        self.caches = [
            torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).to(dtype) for _ in range(2)
        ]
        ints = {"dtype": torch.int32, "device": DEVICE}
        self.table = torch.randperm(num_blocks, device=DEVICE).to(torch.int32)[None]
        self.starts = torch.tensor([0, num_new], **ints)
        self.kv_lens, self.slots = torch.tensor([kv_len], **ints), torch.zeros(1, **ints)
        self.num_flops = 4 * HEADS * HEAD_DIM * (num_new * num_before + num_new * (num_new + 1) / 2)

    @property
    def batch(self) -> tuple[Tensor, ...]:
        places = (self.starts, self.kv_lens, self.table, self.slots)
        return (self.q, *self.caches, *places)

    def error(self, out_THd: Tensor) -> float:
        """Against float64, of some queries from the first to the last."""
        rows = torch.linspace(0, len(self.q) - 1, CHECKED_QUERIES).long().tolist()
        keys, values = (
            cache[self.table[0].long()].transpose(0, 1).flatten(1, 2).double()
            for cache in self.caches
        )
        wanted = []
        for row in rows:
            seen = int(self.kv_lens[0]) - len(self.q) + row + 1
            q_KGd = self.q[row].double().view(KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
            weights = (q_KGd @ keys[:, :seen].mT * HEAD_DIM**-0.5).softmax(-1)
            wanted.append((weights @ values[:, :seen]).flatten(0, 1))
        return relative_error(out_THd[rows], torch.stack(wanted))


def ways(dtype: torch.dtype) -> dict[str, Callable[..., Tensor]]:
    """Each runs a batch of such keys; imported here, where a GPU is known to be there."""
    from tokenlight.kernels.ops.paged_attention import cuda_prefill
    from tokenlight.kernels.ops.paged_attention.tiles import CHUNKED, FLOAT8_PREFILL, PREFILL, Tiles
    from tokenlight.kernels.ops.paged_attention.triton import launch

    tried = [
        PREFILL,
        *(Tiles(128, 128, 8, stages) for stages in (2, 3)),
        *(Tiles(128, 64, 8, stages) for stages in (2, 3, 4)),
        *(Tiles(64, 64, 4, stages) for stages in (2, 3)),
        FLOAT8_PREFILL,
    ]
    once = {
        "once rows {} keys {} warps {} stages {}".format(*tiles): partial(
            launch, sinks_H=None, tiles=tiles, options=(HEAD_DIM**-0.5, 0, 0.0), is_once=True
        )
        for tiles in dict.fromkeys(tried)
    }
    chunked = partial(launch, sinks_H=None, tiles=CHUNKED, options=(HEAD_DIM**-0.5, 0, 0.0))
    tuned = {"cuda": partial(cuda_prefill.attend, scale=HEAD_DIM**-0.5)}
    return {
        **(tuned if dtype is torch.bfloat16 and torch.cuda.get_device_capability()[0] == 9 else {}),
        **once,
        "chunks of 1024": chunked,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to keep every figure")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("a prompt's attention wants a CUDA device")
        return 1
    torch.manual_seed(1)
    print(clocks())
    figures = {}
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        for name, (num_new, num_before) in LENGTHS.items():
            prompt = Prompt(num_new, num_before, dtype)
            for way, run in ways(dtype).items():
                call = partial(run, *prompt.batch)
                error, timed = prompt.error(call()), time_graph([call] * 3, replays=10)
                tflops = prompt.num_flops / timed.us / 1e6
                figures[f"{name}, {way}, {dtype}"] = {"us": timed.us, "error": error}
                print(
                    f"{name:<18} {str(dtype).removeprefix('torch.'):<14} {way:<40} "
                    f"{timed.us:9.1f} us {tflops:6.0f} TFLOP/s {tflops / CEILING:6.1%}  "
                    f"FA3 {FA3.get(name, float('nan')):4.0f}  error {error:.1e}",
                    flush=True,
                )
    print(clocks())
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
