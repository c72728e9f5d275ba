# SPDX-License-Identifier: Apache-2.0
"""A loaded model's steps, timed by themselves: no server, no sampling, as `llama-bench` does."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.kernels import best_s
from tokenlight.checkpoint import open_checkpoint
from tokenlight.kernels import _cpu
from tokenlight.kernels.kv_rows import store_rows
from tokenlight.kv import DevicePool, kv_bytes_per_token
from tokenlight.models import cache_specs, compile_model, load_model
from tokenlight.nn import Step
from tokenlight.runner.batch import make_trial_step
from tokenlight.spmd import Limits

CHUNK_TOKENS = 512
"""Of a prefill: what `llama-bench` gives its model at a time."""
BLOCK_TOKENS = 16
CONTEXT_TOKENS = 4096 + 1024


class Steps:
    """A model with a KV cache of its own, filled with numbers of the usual size."""

    def __init__(self, path: Path, kv_dtype: torch.dtype = torch.float16) -> None:
        checkpoint = open_checkpoint(path)
        model = load_model(checkpoint)
        self.read_bytes = self._read_bytes(model)
        """Weights that a step of one token reads: all but the rows that are only looked up."""
        specs = cache_specs(checkpoint)
        self.kv_bytes_per_token = kv_bytes_per_token(specs, kv_dtype)
        self._pool = DevicePool(
            specs,
            num_blocks=8 * CONTEXT_TOKENS // BLOCK_TOKENS,
            block_tokens=BLOCK_TOKENS,
            dtype=kv_dtype,
        )
        for layer in range(len(specs)):
            for cache, (_, width) in zip(
                self._pool.layer(layer), specs[layer].tensors, strict=True
            ):
                cache.copy_(store_rows(torch.randn(*cache.shape[:3], width), kv_dtype))
        self._model = compile_model(model, self._pool, limits=Limits(T=CHUNK_TOKENS, S=8))

    @staticmethod
    def _read_bytes(model: torch.nn.Module) -> int:
        total = sum(buffer.nbytes for buffer in model.buffers())
        table, head = model.get_submodule("embed_tokens"), model.get_submodule("lm_head")
        is_tied = not any(True for _ in head.buffers(recurse=False))
        return total if is_tied else total - sum(buffer.nbytes for buffer in table.buffers())

    def step(self, num_tokens: int, *, depth: int = 0, num_requests: int = 1) -> Step:
        """So many new tokens in all, each request behind `depth` earlier ones."""
        step = make_trial_step(self._pool, num_tokens=num_tokens, num_requests=num_requests)
        columns = -(-(depth + num_tokens) // BLOCK_TOKENS)
        table = torch.arange(columns * num_requests, dtype=torch.int32).view(num_requests, columns)
        return replace(
            step,
            positions_T=step.positions_T + depth,
            kv_lens=step.kv_lens + depth,
            block_table=table,
            token_ids_T=torch.randint(1000, (num_tokens,), dtype=torch.int32),
        )

    def prefill_tokens_per_s(self, num_tokens: int, depth: int = 0) -> float:
        """A prompt in chunks, and the logits of its last token."""
        steps = [
            self.step(min(CHUNK_TOKENS, num_tokens - first), depth=depth + first)
            for first in range(0, num_tokens, CHUNK_TOKENS)
        ]
        start_s = time.perf_counter()
        with torch.inference_mode():
            for step in steps[:-1]:
                self._model.hidden(step)
            self._model(steps[-1])
        return num_tokens / (time.perf_counter() - start_s)

    def decode_tokens_per_s(
        self, num_steps: int, *, depth: int = 0, num_requests: int = 1
    ) -> float:
        """Steps of one token per request; the rate of all together."""
        steps = [
            self.step(num_requests, depth=depth + i, num_requests=num_requests)
            for i in range(num_steps)
        ]
        with torch.inference_mode():
            self._model(steps[0])
            start_s = time.perf_counter()
            for step in steps:
                self._model(step)
            return num_requests * num_steps / (time.perf_counter() - start_s)


def read_bytes_per_s() -> float:
    """What all threads together read from memory, now."""
    memory = torch.ones(256 << 20, dtype=torch.uint8)
    return memory.numel() / best_s(lambda: _cpu.probe_read(memory.data_ptr(), memory.numel()))
