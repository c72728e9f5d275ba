# SPDX-License-Identifier: Apache-2.0
"""What a GPU's memory is spent on: weights, the largest step, and KV in all that is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tokenlight.base.errors import ConfigError
from tokenlight.kv import DevicePool
from tokenlight.models import CausalLM, CompiledModel, compile_model
from tokenlight.nn import CacheSpec
from tokenlight.runner.batch import make_trial_step
from tokenlight.runner.prompt_logprobs import SLICE_ROWS
from tokenlight.runner.resolve import Limits, ModelShape
from tokenlight.spmd import Limits as RowLimits
from tokenlight.spmd import Ranks

# Captured steps hold the largest one's logits, a few copies of them, and what their kernels ask
# for; of that, those of short requests hold as much again.
_LOGITS_COPIES = 5
_CAPTURE_BYTES = 256 << 20
MAX_FORCED_TOKENS = 64
"""Of a step, beyond one sampled row of each request: what grammars force of all its requests."""


def make_pool(layers: Sequence[CacheSpec], limits: Limits, num_blocks: int) -> DevicePool:
    """With one block more than the scheduler knows of: the rows that pad a step use that."""
    return DevicePool(
        layers,
        num_blocks=num_blocks + 1,
        block_tokens=limits.block_tokens,
        dtype=limits.kv_dtype,
        device=limits.device,
    )


def compile_for(
    model: CausalLM,
    pool: DevicePool,
    limits: Limits,
    ranks: Ranks | None = None,
    *,
    activation_bits: int = 15,
) -> CompiledModel:
    num_rows = max(limits.max_num_requests + MAX_FORCED_TOKENS, SLICE_ROWS)
    return compile_model(
        model,
        pool,
        device=limits.device,
        limits=RowLimits(T=limits.max_step_tokens, S=num_rows),
        ranks=ranks,
        activation_bits=activation_bits,
    )


def weights_bytes(model: CausalLM) -> int:
    return sum(buffer.nbytes for buffer in model.buffers())


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the memory of a GPU is spent on before there is any KV, in bytes."""

    total: int
    elsewhere: int
    """Of other programs, and of the driver for this one."""
    weights: int
    step: int
    """What the largest step needs beside them, and captured steps."""

    def spare_bytes(self, memory_fraction: float, block_bytes: int) -> int:
        """What is left for KV.

        Raises:
            ConfigError: not even a block; the message says what took how much.
        """
        allowed = int(self.total * memory_fraction)
        spare = allowed - self.elsewhere - self.weights - self.step
        # One block to use, and one for padding.
        if spare < 2 * block_bytes:
            raise ConfigError(
                f"no GPU memory is left for KV: of {_gib(self.total)}, --gpu-memory-utilization "
                f"{memory_fraction} allows {_gib(allowed)}; weights take {_gib(self.weights)}, the "
                f"largest step {_gib(self.step)}, other programs and the driver "
                f"{_gib(self.elsewhere)}; raise --gpu-memory-utilization, lower "
                f"--max-num-batched-tokens or --max-num-seqs, or take a smaller model"
            )
        return spare


@torch.inference_mode()
def measure_usage(
    model: CausalLM,
    shape: ModelShape,
    limits: Limits,
    ranks: Ranks | None = None,
    *,
    num_groups: int = 1,
) -> Usage:
    """Run the steps that need most, on a pool that holds just those; all ranks do so at once.

    Args:
        model: filled.
        shape: the checkpoint's.
        limits: of steps.
        ranks: None: this one is alone.
        num_groups: of ranks with other requests: the leading rank has the logits of all of them.
    """
    torch.cuda.empty_cache()  # what loading needed beside the weights
    reserved_bytes = torch.cuda.memory_reserved()
    pool = make_pool(shape.layers, limits, -(-limits.max_step_tokens // limits.block_tokens))
    compiled = compile_for(model, pool, limits, ranks)
    vocab_size = 0
    for num_tokens, num_requests in trials(limits):
        step = make_trial_step(
            pool,
            num_tokens=num_tokens,
            num_requests=num_requests,
            num_columns=-(-limits.max_model_tokens // limits.block_tokens),
            device=limits.device,
        )
        vocab_size = compiled(step).shape[1]
    torch.cuda.synchronize()
    # Kernels were loaded by now: what the driver holds for them is counted as well.
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    held_bytes = torch.cuda.memory_reserved()
    logits_bytes = 4 * num_groups * limits.max_num_requests * vocab_size
    return Usage(
        total=total_bytes,
        elsewhere=total_bytes - free_bytes - held_bytes,
        weights=reserved_bytes,
        step=held_bytes
        - reserved_bytes
        - pool.num_bytes
        + len(limits.graph_tokens) * _CAPTURE_BYTES
        + _LOGITS_COPIES * logits_bytes,
    )


def trials(limits: Limits) -> list[tuple[int, int]]:
    """Tokens and requests of the steps that may need most: kernels choose by both."""
    most, requests = limits.max_step_tokens, limits.max_num_requests
    few = min(most, 32 * requests)
    sizes = [
        (most, 1),
        (most, requests),
        (min(512, most), 1),
        (few, requests),
        (requests, requests),
    ]
    return [(tokens, min(tokens, each)) for tokens, each in sizes]


class Stage(NamedTuple):
    """A part of a start, as it is told when memory does not suffice for it."""

    what: str
    helps: str


WEIGHTS = Stage(
    "the weights",
    "end other programs on this GPU, spread the model over several with --tensor-parallel-size, "
    "or take a smaller one",
)
LARGEST_STEPS = Stage(
    "the steps that need most",
    "lower --max-num-batched-tokens or --max-num-seqs, end other programs on this GPU, or take a "
    "smaller model",
)
SERVING = Stage(
    "KV and captured steps",
    "lower --gpu-memory-utilization or --kv-cache-memory-bytes, capture nothing with "
    "--enforce-eager, or end other programs on this GPU",
)


@contextmanager
def told_when_out_of_memory(stage: Stage, held: Mapping[str, int] | None = None) -> Iterator[None]:
    """Turn the allocator's error into one that says what took how much and which flags help.

    Args:
        stage: what the memory is for.
        held: what has been allocated by now, in bytes, by name.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as fault:
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        reserved_bytes = torch.cuda.memory_reserved()
        taken = {
            **(held or {}),
            "this stage so far": reserved_bytes - sum((held or {}).values()),
            "other programs and the driver": total_bytes - free_bytes - reserved_bytes,
        }
        shares = ", ".join(f"{name} {_gib(num_bytes)}" for name, num_bytes in taken.items())
        raise ConfigError(
            f"the GPU's memory is not enough for {stage.what}: of {_gib(total_bytes)}, {shares}, "
            f"and {_gib(free_bytes)} are free; {stage.helps} ({fault})"
        ) from fault


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.2f} GiB"
