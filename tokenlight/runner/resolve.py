# SPDX-License-Identifier: Apache-2.0
"""From what was asked to what is run: "auto" becomes numbers here, once, in a new object."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import Checkpoint
from tokenlight.config import EngineConfig
from tokenlight.control import SchedulerConfig
from tokenlight.kv import kv_bytes_per_token
from tokenlight.models import cache_specs
from tokenlight.nn import CacheSpec
from tokenlight.runner.machine import Machine

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_DEFAULT_CONTEXTS = 4
_DEFAULT_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What sizes the KV cache: the checkpoint's own numbers."""

    layers: Sequence[CacheSpec]
    max_model_tokens: int
    is_float32: bool
    """Whether every tensor of the checkpoint is float32: then keys and values are as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """What the engine runs with. Nothing here is "auto" or None."""

    dtype: torch.dtype
    kv_dtype: torch.dtype
    num_threads: int
    block_tokens: int
    num_blocks: int
    block_bytes: int
    """One block of all layers."""
    max_model_tokens: int
    max_num_requests: int
    max_step_tokens: int
    prefix_reuse: bool
    overlap: int
    """Steps that may be in flight while the next one is planned."""

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes


def model_shape(checkpoint: Checkpoint) -> ModelShape:
    """The numbers out of a checkpoint's configuration and headers."""
    return ModelShape(
        layers=cache_specs(checkpoint),
        max_model_tokens=checkpoint.config["max_position_embeddings"],
        is_float32={each.format for each in checkpoint.tensors.values()} == {"f32"},
    )


def resolve(config: EngineConfig, shape: ModelShape, machine: Machine) -> ResolvedConfig:
    """Choose every number that was left open.

    Raises:
        ConfigError: what was asked cannot be had on this machine; the message has the numbers.
    """
    if config.model.dtype not in ("auto", "float32"):
        raise ConfigError(
            f"--dtype {config.model.dtype} is not available on a CPU: activations are float32 "
            f"there (weights stay as the checkpoint stores them); leave --dtype out"
        )
    kv_dtype = _kv_dtype(config.cache.kv_dtype, shape)
    block_tokens = config.cache.block_tokens
    block_bytes = block_tokens * kv_bytes_per_token(shape.layers, kv_dtype)
    longest_tokens = shape.max_model_tokens
    if config.scheduler.max_model_tokens is not None:
        longest_tokens = min(longest_tokens, config.scheduler.max_model_tokens)
    num_blocks = _num_blocks(config, longest_tokens, block_bytes, machine)
    return ResolvedConfig(
        dtype=torch.float32,
        kv_dtype=kv_dtype,
        num_threads=config.num_threads or machine.num_cores,
        block_tokens=block_tokens,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        max_model_tokens=min(longest_tokens, num_blocks * block_tokens),
        max_num_requests=config.scheduler.max_num_requests,
        max_step_tokens=config.scheduler.max_step_tokens,
        prefix_reuse=config.cache.prefix_reuse == "exact",
        # On a CPU the next plan would compete with the step for the same cores.
        overlap=0,
    )


def scheduler_config(config: ResolvedConfig, *, hash_key: bytes) -> SchedulerConfig:
    """What the control plane must know of the memory and the limits."""
    return SchedulerConfig(
        num_blocks=config.num_blocks,
        block_tokens=config.block_tokens,
        max_num_requests=config.max_num_requests,
        max_step_tokens=config.max_step_tokens,
        max_model_tokens=config.max_model_tokens,
        prefix_reuse=config.prefix_reuse,
        overlap=config.overlap,
        hash_key=hash_key,
    )


def _kv_dtype(asked: str, shape: ModelShape) -> torch.dtype:
    if asked == "auto":
        return torch.float32 if shape.is_float32 else torch.float16
    return _DTYPES[asked]


def _num_blocks(
    config: EngineConfig, longest_tokens: int, block_bytes: int, machine: Machine
) -> int:
    asked_bytes = config.cache.kv_cache_bytes
    if asked_bytes is not None:
        if asked_bytes > machine.memory_bytes:
            raise ConfigError(
                f"--kv-cache-memory-bytes {asked_bytes} is more than the {machine.memory_bytes} "
                f"bytes of memory that this process may use; ask for less, or leave it out"
            )
        num_blocks = asked_bytes // block_bytes
    else:
        blocks_per_context = -(-longest_tokens // config.cache.block_tokens)
        affordable_bytes = int(machine.memory_bytes * _DEFAULT_MEMORY_SHARE)
        num_blocks = min(_DEFAULT_CONTEXTS * blocks_per_context, affordable_bytes // block_bytes)
    if num_blocks < 1:
        raise ConfigError(
            f"the KV cache holds no block: one of {config.cache.block_tokens} tokens takes "
            f"{block_bytes} bytes; give --kv-cache-memory-bytes at least that"
        )
    return num_blocks
