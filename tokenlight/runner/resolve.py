# SPDX-License-Identifier: Apache-2.0
"""From what was asked to what is run: "auto" becomes numbers here, once, in a new object."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import Checkpoint
from tokenlight.config import EngineConfig
from tokenlight.control import SchedulerConfig
from tokenlight.kernels import SHORT_TOKENS
from tokenlight.kv import kv_bytes_per_token
from tokenlight.models import cache_specs
from tokenlight.nn import CacheSpec
from tokenlight.runner.machine import Machine
from tokenlight.spmd import Mesh

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
}

# A GPU's decode attention copies what lies in one block, 32 tokens at most.
_BLOCK_TOKENS = {"cpu": 16, "cuda": 32}
_STEP_TOKENS = {"cpu": 512, "cuda": 2048}
# On a CPU the next plan would compete with the step for the same cores.
_OVERLAP = {"cpu": 0, "cuda": 1}
_FP8_ARCH = 89
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
class Limits:
    """What is known before the weights are read. Nothing here is "auto" or None."""

    device: str
    """"cpu" or "cuda"."""
    dtype: torch.dtype
    kv_dtype: torch.dtype
    block_tokens: int
    block_bytes: int
    """One block of all layers."""
    max_num_requests: int
    max_step_tokens: int
    max_model_tokens: int
    """Of a prompt and its answer; less, once it is known that KV has no room for so many."""

    @property
    def graph_tokens(self) -> tuple[int, ...]:
        """Decodes are captured for requests of up to so many tokens, with block tables as wide.

        For short ones, which kernels may serve in another way, and for all; ascending.
        """
        short = (SHORT_TOKENS,) if self.max_model_tokens > SHORT_TOKENS else ()
        return (*short, self.max_model_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig(Limits):
    """What the engine runs with."""

    num_threads: int
    num_blocks: int
    prefix_reuse: bool
    num_groups: int
    """Of ranks with requests, and blocks, of their own; what is said here of requests, tokens and
    blocks is said of each group.
    """
    overlap: int
    """Steps that may be in flight while the next one is planned."""
    graph_rows: tuple[int, ...]
    """Decode steps are captured for these numbers of requests, and padded to the next; ascending.
    Empty: every step is launched kernel by kernel.
    """

    @property
    def is_staged(self) -> bool:
        """Whether steps are queued: their inputs are copied to where they are read."""
        return self.device != "cpu" or self.overlap > 0 or bool(self.graph_rows)

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes


def model_shape(checkpoint: Checkpoint, mesh: Mesh | None = None) -> ModelShape:
    """The numbers out of a checkpoint's configuration and headers; caches are the mesh's rank's."""
    return ModelShape(
        layers=cache_specs(checkpoint, mesh),
        max_model_tokens=checkpoint.config["max_position_embeddings"],
        is_float32={each.format for each in checkpoint.tensors.values()} == {"f32"},
    )


def resolve_limits(config: EngineConfig, shape: ModelShape, machine: Machine) -> Limits:
    """Choose the device and what follows from it alone.

    Raises:
        ConfigError: what was asked cannot be had on this machine.
    """
    device = _device(config.device, machine)
    if config.activation_bits != 15 and device != "cpu":
        raise ConfigError(
            f"--cpu-activation-bits {config.activation_bits} is for a CPU, and this engine runs on "
            f"a GPU: leave it out, or give --device cpu"
        )
    dtype = _dtype(config.model.dtype, device)
    kv_dtype = _kv_dtype(config.cache.kv_dtype, shape, device, dtype, machine)
    num_requests = config.scheduler.max_num_requests
    block_tokens = config.cache.block_tokens or _BLOCK_TOKENS[device]
    asked_tokens = config.scheduler.max_model_tokens or shape.max_model_tokens
    return Limits(
        device=device,
        dtype=dtype,
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        block_bytes=block_tokens * kv_bytes_per_token(shape.layers, kv_dtype),
        max_num_requests=num_requests,
        max_step_tokens=config.scheduler.max_step_tokens or max(_STEP_TOKENS[device], num_requests),
        max_model_tokens=min(asked_tokens, shape.max_model_tokens),
    )


def resolve(
    config: EngineConfig, shape: ModelShape, machine: Machine, spare_bytes: int | None = None
) -> ResolvedConfig:
    """Choose every number that was left open.

    Args:
        config: what was asked.
        shape: the model's.
        machine: what there is.
        spare_bytes: of a GPU, what weights and steps leave for KV; a CPU's follows from `machine`.

    Raises:
        ConfigError: what was asked cannot be had on this machine; the message has the numbers.
    """
    limits = resolve_limits(config, shape, machine)
    if spare_bytes is None:
        num_blocks = _blocks_in_memory(config, limits, machine)
    else:
        num_blocks = _blocks_in_spare(config, limits, spare_bytes)
    overlap = config.scheduler.overlap
    is_captured = limits.device == "cuda" and config.step_graphs == "on"
    return ResolvedConfig(
        device=limits.device,
        dtype=limits.dtype,
        kv_dtype=limits.kv_dtype,
        num_threads=config.num_threads or machine.num_cores,
        block_tokens=limits.block_tokens,
        num_blocks=num_blocks,
        block_bytes=limits.block_bytes,
        max_model_tokens=min(limits.max_model_tokens, num_blocks * limits.block_tokens),
        max_num_requests=limits.max_num_requests,
        max_step_tokens=limits.max_step_tokens,
        prefix_reuse=config.cache.prefix_reuse == "exact",
        num_groups=config.parallel.dp,
        overlap=_OVERLAP[limits.device] if overlap is None else overlap,
        graph_rows=graph_rows(limits.max_num_requests) if is_captured else (),
    )


def with_blocks(config: ResolvedConfig, num_blocks: int) -> ResolvedConfig:
    """The same with a KV pool of so many blocks, no more than there were."""
    longest_tokens = min(config.max_model_tokens, num_blocks * config.block_tokens)
    return replace(config, num_blocks=num_blocks, max_model_tokens=longest_tokens)


def graph_rows(max_num_requests: int) -> tuple[int, ...]:
    """1, 2, 4, 8, then each multiple of 8, up to the first that holds `max_num_requests`."""
    last = -(-max_num_requests // 8) * 8
    rows = (1, 2, 4, *range(8, last + 1, 8))
    fitting = [n for n in rows if n < max_num_requests]
    return (*fitting, max_num_requests)


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


def _device(asked: str, machine: Machine) -> str:
    if asked == "cuda" and not machine.num_gpus:
        raise ConfigError(
            "--device cuda: torch sees no CUDA device here; is the driver there, and is this "
            f"torch ({torch.__version__}) a CUDA build? --device cpu runs without"
        )
    if asked == "auto":
        return "cuda" if machine.num_gpus else "cpu"
    return asked


def _dtype(asked: str, device: str) -> torch.dtype:
    if device == "cuda":
        # A float32 checkpoint runs in bfloat16 as well unless float32 is asked for: at half the
        # bytes, and with every kernel.
        return torch.bfloat16 if asked == "auto" else _DTYPES[asked]
    if asked not in ("auto", "float32"):
        raise ConfigError(
            f"--dtype {asked} is not available on a CPU: activations are float32 "
            f"there (weights stay as the checkpoint stores them); leave --dtype out"
        )
    return torch.float32


def _kv_dtype(
    asked: str, shape: ModelShape, device: str, dtype: torch.dtype, machine: Machine
) -> torch.dtype:
    if asked in ("int8", "fp8"):
        return _short_kv_dtype(asked, shape, device, machine)
    if asked != "auto":
        return _DTYPES[asked]
    if device == "cuda":
        return dtype
    return torch.float32 if shape.is_float32 else torch.float16


def _short_kv_dtype(asked: str, shape: ModelShape, device: str, machine: Machine) -> torch.dtype:
    """A byte per number: each for the devices whose kernels read it."""
    if any(len(spec.tensors) != 2 for spec in shape.layers):
        raise ConfigError(
            f"--kv-cache-dtype {asked} is for the keys and values of plain attention, and this "
            f"model keeps a latent vector; use auto here"
        )
    if asked == "int8":
        if device != "cpu":
            raise ConfigError("--kv-cache-dtype int8 is for a CPU; on a GPU, fp8 takes as little")
        return torch.int8
    if device != "cuda":
        raise ConfigError("--kv-cache-dtype fp8 is for a GPU; on a CPU, int8 takes as little")
    if machine.gpu_arch < _FP8_ARCH:
        raise ConfigError(
            f"--kv-cache-dtype fp8 needs a GPU of compute capability {_FP8_ARCH / 10} or more, "
            f"which converts it; this one has {machine.gpu_arch / 10}: use auto here"
        )
    return torch.float8_e4m3fn


def _blocks_in_memory(config: EngineConfig, limits: Limits, machine: Machine) -> int:
    asked_bytes = config.cache.kv_cache_bytes
    if asked_bytes is not None:
        if asked_bytes > machine.memory_bytes:
            raise ConfigError(
                f"--kv-cache-memory-bytes {asked_bytes} is more than the {machine.memory_bytes} "
                f"bytes of memory that this process may use; ask for less, or leave it out"
            )
        return _at_least_one(asked_bytes // limits.block_bytes, limits)
    blocks_per_context = -(-limits.max_model_tokens // limits.block_tokens)
    # Each of the ranks on this machine has a pool.
    num_ranks = min(machine.num_local_ranks or config.parallel.num_ranks, config.parallel.num_ranks)
    affordable_bytes = int(machine.memory_bytes * _DEFAULT_MEMORY_SHARE) // num_ranks
    most = affordable_bytes // limits.block_bytes
    return _at_least_one(min(_DEFAULT_CONTEXTS * blocks_per_context, most), limits)


def _blocks_in_spare(config: EngineConfig, limits: Limits, spare_bytes: int) -> int:
    asked_bytes = config.cache.kv_cache_bytes
    if asked_bytes is not None and asked_bytes > spare_bytes:
        raise ConfigError(
            f"--kv-cache-memory-bytes {asked_bytes} is more than the {spare_bytes} bytes of the "
            f"GPU's memory that weights and steps leave; ask for less, or leave it out"
        )
    # One block more than the scheduler knows of is there for the rows that pad a step.
    num_blocks = (spare_bytes if asked_bytes is None else asked_bytes) // limits.block_bytes - 1
    return _at_least_one(num_blocks, limits)


def _at_least_one(num_blocks: int, limits: Limits) -> int:
    if num_blocks < 1:
        raise ConfigError(
            f"the KV cache holds no block: one of {limits.block_tokens} tokens takes "
            f"{limits.block_bytes} bytes; give --kv-cache-memory-bytes at least that"
        )
    return num_blocks
