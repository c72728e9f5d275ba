# SPDX-License-Identifier: Apache-2.0
"""What the engine process is told: frozen, and validated at birth.

A field's flag is declared beside it (`flag(...)`): `config/flags.py` makes the parser, --help and
docs/config.md from these fields and their docstrings, so nothing is written twice.
"""

from dataclasses import dataclass, field
from typing import Literal

from tokenlight.base.errors import ConfigError
from tokenlight.config.field import flag
from tokenlight.config.parallel import ParallelConfig

# Beyond what any machine of today runs well: what is asked by a slip must not first be allocated.
_MOST_REQUESTS = 1 << 16
_MOST_STEP_TOKENS = 1 << 20
_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which checkpoint, and in which precision it runs."""

    model: str = field(default="", metadata=flag(positional="MODEL"))
    """A GGUF file, a folder with config.json and safetensors, or a Hub id (`owner/name`, or
    `owner/name:Q4_K_M` for a GGUF file in it). Default: SmolLM2-135M-Instruct, 98 MB.
    """

    revision: str | None = field(default=None, metadata=flag("--revision"))
    """Branch, tag or commit of a Hub model. Default: main."""

    tokenizer: str | None = field(default=None, metadata=flag("--tokenizer"))
    """A folder with tokenizer.json, or a GGUF file. Default: the checkpoint's own tokenizer."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"] = field(
        default="auto", metadata=flag("--dtype")
    )
    """Activation type. auto: float32 on a CPU, bfloat16 on a GPU whatever the checkpoint has."""

    load_format: Literal["auto", "dummy"] = field(default="auto", metadata=flag("--load-format"))
    """auto: the weights of the checkpoint. dummy: random ones, the same on every device; the folder
    needs config.json, and a tokenizer where texts are read and written (or --tokenizer).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The paged KV cache."""

    block_tokens: int | None = field(default=None, metadata=flag("--block-size"))
    """Tokens per KV block: the unit of allocation and of prefix reuse; a power of two. Default: 16
    on a CPU, 32 on a GPU.
    """

    kv_cache_bytes: int | None = field(default=None, metadata=flag("--kv-cache-memory-bytes"))
    """Memory for KV, of each rank. Default: on a CPU four full contexts, at most a quarter of the
    memory over all ranks; on a GPU what --gpu-memory-utilization leaves.
    """

    memory_fraction: float = field(default=0.9, metadata=flag("--gpu-memory-utilization"))
    """Share of the GPU's memory for weights, activations and KV together, above 0 and at most 1."""

    kv_dtype: Literal["auto", "float32", "float16", "bfloat16", "bf16", "int8", "fp8"] = field(
        default="auto", metadata=flag("--kv-cache-dtype")
    )
    """Type of stored keys and values. auto: float16 on a CPU, or float32 for a float32 checkpoint;
    on a GPU the activations' own. bf16 is bfloat16. int8 is for CPUs: half of the memory, a scale
    per token and head. fp8 is for GPUs of compute capability 8.9 and more: half of the memory, e4m3
    without a scale.
    """

    prefix_reuse: Literal["off", "exact"] = field(
        default="exact", metadata=flag("--enable-prefix-caching", on="exact", off="off")
    )
    """Whether computed blocks may serve a later prompt with the same prefix."""

    def __post_init__(self) -> None:
        tokens = self.block_tokens
        if tokens is not None and (tokens < 1 or tokens & (tokens - 1)):
            raise ConfigError(f"--block-size must be a power of two, got {tokens}; try 16")
        if self.kv_cache_bytes is not None and self.kv_cache_bytes < 1:
            raise ConfigError(
                f"--kv-cache-memory-bytes must be at least 1, got {self.kv_cache_bytes}"
            )
        if not 0 < self.memory_fraction <= 1:
            raise ConfigError(
                f"--gpu-memory-utilization must be above 0 and at most 1, "
                f"got {self.memory_fraction}; try 0.9"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How much work a step and the engine take on."""

    max_model_tokens: int | None = field(default=None, metadata=flag("--max-model-len"))
    """Longest prompt and answer together.

    Default: the checkpoint's own limit, or what the KV memory holds if that is less.
    """

    max_num_requests: int = field(default=64, metadata=flag("--max-num-seqs"))
    """Most requests that run in one step; more wait."""

    max_step_tokens: int | None = field(default=None, metadata=flag("--max-num-batched-tokens"))
    """Most tokens in one step: decodes first, prefill chunks fill the rest. Default: 512 on a CPU,
    2048 on a GPU.
    """

    overlap: int | None = field(default=None, metadata=flag("--overlap-steps"))
    """Steps that may run while the next one is planned, 0 to 2. Default: 0 on a CPU, 1 on a GPU."""

    def __post_init__(self) -> None:
        if self.max_model_tokens is not None and self.max_model_tokens < 2:
            raise ConfigError(f"--max-model-len must be at least 2, got {self.max_model_tokens}")
        for name, asked, most in (
            ("--max-num-seqs", self.max_num_requests, _MOST_REQUESTS),
            ("--max-num-batched-tokens", self.max_step_tokens, _MOST_STEP_TOKENS),
        ):
            if asked is not None and not 1 <= asked <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, got {asked}")
        if self.overlap is not None and not 0 <= self.overlap <= 2:
            raise ConfigError(f"--overlap-steps must be 0, 1 or 2, got {self.overlap}")
        if self.max_step_tokens is not None and self.max_step_tokens < self.max_num_requests:
            raise ConfigError(
                f"--max-num-batched-tokens ({self.max_step_tokens}) must be at least "
                f"--max-num-seqs ({self.max_num_requests}): each step has a token of each request"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that the engine process needs; travels to it as JSON on its standard input."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    device: Literal["auto", "cpu", "cuda"] = field(default="auto", metadata=flag("--device"))
    """Where the model runs. auto: on a GPU where there is one."""

    step_graphs: Literal["on", "off"] = field(
        default="on", metadata=flag("--enforce-eager", on="off", off="on")
    )
    """Launch every kernel of every step from Python, instead of replaying captured decode steps on
    a GPU: slower, for finding faults.
    """

    row_invariance: Literal["on", "off"] = field(
        default="off", metadata=flag("--enable-deterministic-inference", on="on", off="off")
    )
    """Whether a token's bits are the same on a GPU whatever shares its step and however its prompt
    was cut: other products and attention, which are slower. On a CPU it is always so but for
    plugins that say otherwise. What `tokenlight kernels tune` kept is ignored on both, so that
    machines of one kind compute the same bits.
    """

    num_threads: int | None = field(default=None, metadata=flag("--num-threads"))
    """CPU threads. Default: one per physical core that this process may use."""

    activation_bits: int = field(default=15, metadata=flag("--cpu-activation-bits"))
    """Bits of what products of Q4_K, Q5_K, Q6_K and Q8_0 take on a CPU: 15, which leave float32's
    answers, or 8, as in llama.cpp, with which prompts take two thirds of the time and answers part
    from float32's as there. Experts, the head and other formats take 15.
    """

    record_control: str | None = field(default=None, metadata=flag("--record-control"))
    """Write every call of the scheduler to this file, which `python -m tokenlight.control.replay`
    repeats. It holds the token ids of every prompt; only its owner can read it. With
    --data-parallel-size a file per group: this name, a dot, the group's number. Default: off.
    """

    def __post_init__(self) -> None:
        if self.num_threads is not None and not 1 <= self.num_threads <= _MOST_THREADS:
            raise ConfigError(
                f"--num-threads must be from 1 to {_MOST_THREADS}, got {self.num_threads}; leave "
                f"it out for one per physical core"
            )
        if self.activation_bits not in (8, 15):
            raise ConfigError(f"--cpu-activation-bits must be 8 or 15, got {self.activation_bits}")
