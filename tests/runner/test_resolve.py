# SPDX-License-Identifier: Apache-2.0
"""Every "auto" has one answer, and a wish that cannot be met is refused with the numbers."""

import dataclasses

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from tokenlight.config.flags import flags_of
from tokenlight.kernels import SHORT_TOKENS
from tokenlight.nn import CacheSpec
from tokenlight.runner.machine import Machine
from tokenlight.runner.resolve import (
    ModelShape,
    graph_rows,
    model_shape,
    resolve,
    resolve_limits,
    scheduler_config,
    with_blocks,
)

MACHINE = Machine(num_cores=2, memory_bytes=8 << 30)
# SmolLM2-135M: 30 layers, 3 KV heads of 64, 8192 tokens.
SHAPE = ModelShape(
    layers=[CacheSpec.keys_values(3, 64)] * 30, max_model_tokens=8192, is_float32=False
)
GPU = dataclasses.replace(MACHINE, num_gpus=1, gpu_arch=90)
TOKEN_BYTES = 30 * 2 * 3 * 64 * 2  # float16


def test_default_has_room_for_four_full_contexts():
    resolved = resolve(EngineConfig(), SHAPE, MACHINE)
    assert resolved.num_blocks * resolved.block_tokens == 4 * 8192
    assert resolved.block_tokens == 16
    assert resolved.kv_bytes == 4 * 8192 * TOKEN_BYTES
    assert (resolved.max_model_tokens, resolved.num_threads, resolved.kv_dtype) == (
        8192,
        2,
        torch.float16,
    )


def test_default_takes_at_most_a_quarter_of_memory():
    small = Machine(num_cores=1, memory_bytes=256 << 20)
    resolved = resolve(EngineConfig(), SHAPE, small)
    assert resolved.kv_bytes <= 64 << 20
    assert resolved.kv_bytes + resolved.block_bytes > 64 << 20
    assert resolved.max_model_tokens == resolved.num_blocks * 16 < 8192


def test_a_quarter_of_memory_is_for_all_ranks_of_a_machine():
    small = Machine(num_cores=1, memory_bytes=256 << 20)
    resolved = resolve(EngineConfig(parallel=ParallelConfig(dp=4)), SHAPE, small)
    assert resolved.num_groups == 4
    assert 4 * resolved.kv_bytes <= 64 << 20
    assert 4 * (resolved.kv_bytes + resolved.block_bytes) > 64 << 20
    two_here = dataclasses.replace(small, num_local_ranks=2)
    spread = resolve(EngineConfig(parallel=ParallelConfig(dp=4)), SHAPE, two_here)
    assert 2 * spread.kv_bytes <= 64 << 20 < 2 * (spread.kv_bytes + spread.block_bytes)


def test_ranks_use_no_more_blocks_than_the_smallest_of_them_has():
    resolved = resolve(EngineConfig(), SHAPE, MACHINE)
    assert with_blocks(resolved, resolved.num_blocks) == resolved
    agreed = with_blocks(resolved, 100)
    assert (agreed.num_blocks, agreed.max_model_tokens) == (100, 1600)
    assert agreed.kv_bytes == 1600 * TOKEN_BYTES


def test_context_is_the_least_of_checkpoint_flag_and_kv():
    flag = EngineConfig(scheduler=SchedulerConfig(max_model_tokens=1000))
    assert resolve(flag, SHAPE, MACHINE).max_model_tokens == 1000
    assert resolve_limits(flag, SHAPE, MACHINE).graph_tokens == (1000,)
    assert resolve_limits(EngineConfig(), SHAPE, MACHINE).graph_tokens == (SHORT_TOKENS, 8192)
    beyond = EngineConfig(scheduler=SchedulerConfig(max_model_tokens=1 << 20))
    assert resolve(beyond, SHAPE, MACHINE).max_model_tokens == 8192
    kv = EngineConfig(cache=CacheConfig(kv_cache_bytes=33 * 16 * TOKEN_BYTES + 1))
    assert resolve(kv, SHAPE, MACHINE).max_model_tokens == 33 * 16


def test_int8_keys_and_values_take_a_byte_each_and_a_scale_per_row():
    asked = EngineConfig(cache=CacheConfig(kv_dtype="int8"))
    resolved = resolve(asked, SHAPE, MACHINE)
    assert resolved.kv_dtype == torch.int8
    assert resolved.block_bytes == 16 * 30 * 2 * 3 * (64 + 4)


def test_fp8_keys_and_values_take_half_of_what_bfloat16_takes():
    """So the same memory holds twice the blocks, and a prefix cache twice the tokens."""
    plain = resolve(EngineConfig(), SHAPE, GPU, spare_bytes=1 << 30)
    asked = EngineConfig(cache=CacheConfig(kv_dtype="fp8"))
    resolved = resolve(asked, SHAPE, GPU, spare_bytes=1 << 30)
    assert (resolved.dtype, resolved.kv_dtype) == (torch.bfloat16, torch.float8_e4m3fn)
    assert 2 * resolved.block_bytes == plain.block_bytes
    assert (resolved.num_blocks + 1) // 2 == plain.num_blocks + 1


# What is asked -> on a CPU, on a GPU; None: refused.
KV_DTYPES = {
    "auto": (torch.float16, torch.bfloat16),
    "float32": (torch.float32, torch.float32),
    "float16": (torch.float16, torch.float16),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "bf16": (torch.bfloat16, torch.bfloat16),
    "int8": (torch.int8, None),
    "fp8": (None, torch.float8_e4m3fn),
}


@pytest.mark.parametrize("asked", KV_DTYPES)
def test_each_type_of_keys_and_values_is_had_or_refused_where_it_runs(asked):
    config = EngineConfig(cache=CacheConfig(kv_dtype=asked))
    for machine, wanted in zip((MACHINE, GPU), KV_DTYPES[asked], strict=True):
        if wanted is None:
            with pytest.raises(ConfigError, match=f"--kv-cache-dtype {asked} is for a"):
                resolve_limits(config, SHAPE, machine)
        else:
            assert resolve_limits(config, SHAPE, machine).kv_dtype == wanted


def test_these_are_all_types_that_can_be_asked_for():
    (flag,) = (f for f in flags_of(EngineConfig) if f.path == "cache.kv_dtype")
    assert flag.choices == tuple(KV_DTYPES)


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_a_latent_vector_is_kept_in_no_short_type(kv_dtype):
    latent = dataclasses.replace(SHAPE, layers=[CacheSpec(((1, 576),))])
    asked = EngineConfig(cache=CacheConfig(kv_dtype=kv_dtype))
    for machine in (MACHINE, GPU):
        with pytest.raises(ConfigError, match="keeps a latent vector"):
            resolve(asked, latent, machine, spare_bytes=1 << 30)


def test_one_overlap_for_the_scheduler_and_the_loop():
    resolved = resolve(EngineConfig(), SHAPE, MACHINE)
    assert resolved.overlap == 0
    deeper = dataclasses.replace(resolved, overlap=2)
    assert scheduler_config(deeper, hash_key=bytes(16)).overlap == 2


def test_a_float32_checkpoint_keeps_float32_keys_and_values():
    shape = dataclasses.replace(SHAPE, is_float32=True)
    assert resolve(EngineConfig(), shape, MACHINE).kv_dtype == torch.float32
    asked = EngineConfig(cache=CacheConfig(kv_dtype="bfloat16"))
    assert resolve(asked, shape, MACHINE).kv_dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (EngineConfig(model=ModelConfig(dtype="bfloat16")), "bfloat16 is not available on a CPU"),
        (EngineConfig(cache=CacheConfig(kv_cache_bytes=100)), f"takes {16 * TOKEN_BYTES} bytes"),
        (EngineConfig(cache=CacheConfig(kv_dtype="fp8")), "for a GPU; on a CPU, int8"),
        (EngineConfig(cache=CacheConfig(kv_cache_bytes=9 << 30)), f"more than the {8 << 30} bytes"),
    ],
)
def test_what_cannot_be_had_is_refused(config, said):
    with pytest.raises(ConfigError, match=said):
        resolve(config, SHAPE, MACHINE)


def test_prefix_reuse_and_threads_follow_the_flags():
    config = EngineConfig(cache=CacheConfig(prefix_reuse="off"), num_threads=7)
    resolved = resolve(config, SHAPE, MACHINE)
    assert (resolved.prefix_reuse, resolved.num_threads) == (False, 7)
    assert resolve(EngineConfig(), SHAPE, MACHINE).prefix_reuse is True


@pytest.mark.parametrize("stored", ["f32", "q8_0"])
def test_shape_is_read_from_the_checkpoint(tmp_path, stored):
    path = write_tiny_llama(tmp_path / "tiny.gguf", format=stored, context=128)
    shape = model_shape(open_checkpoint(path))
    assert shape.layers == [CacheSpec.keys_values(2, 16)] * 2
    assert shape.max_model_tokens == 128
    assert shape.is_float32 == (stored == "f32")


GPU_TOKEN_BYTES = TOKEN_BYTES  # bfloat16


def test_a_gpu_is_taken_where_there_is_one_and_kv_fills_what_is_spare():
    resolved = resolve(EngineConfig(), SHAPE, GPU, spare_bytes=(1 << 30) + 5)
    assert (resolved.device, resolved.dtype, resolved.kv_dtype) == (
        "cuda",
        torch.bfloat16,
        torch.bfloat16,
    )
    assert (resolved.overlap, resolved.max_step_tokens, resolved.block_tokens) == (1, 2048, 32)
    # One block is kept for the rows that pad a step.
    assert (resolved.num_blocks + 1) * resolved.block_bytes <= 1 << 30
    assert (resolved.num_blocks + 2) * resolved.block_bytes > 1 << 30
    assert resolve(EngineConfig(device="cpu"), SHAPE, GPU) == resolve(
        EngineConfig(), SHAPE, MACHINE
    )


def test_what_is_asked_of_a_gpu_wins_over_its_defaults():
    asked = EngineConfig(
        model=ModelConfig(dtype="float16"),
        cache=CacheConfig(block_tokens=16, kv_cache_bytes=100 * 16 * GPU_TOKEN_BYTES),
        scheduler=SchedulerConfig(overlap=2, max_step_tokens=4096),
        step_graphs="off",
    )
    resolved = resolve(asked, SHAPE, GPU, spare_bytes=1 << 30)
    assert (resolved.dtype, resolved.num_blocks, resolved.overlap) == (torch.float16, 99, 2)
    assert (resolved.max_step_tokens, resolved.graph_rows) == (4096, ())


@pytest.mark.parametrize(
    ("most", "rows"),
    [(1, (1,)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (20, (1, 2, 4, 8, 16, 20))],
)
def test_captured_rows_end_with_the_most(most, rows):
    assert graph_rows(most) == rows


@pytest.mark.parametrize(
    ("config", "machine", "spare_bytes", "said"),
    [
        (EngineConfig(device="cuda"), MACHINE, None, "torch sees no CUDA device"),
        (EngineConfig(cache=CacheConfig(kv_dtype="int8")), GPU, 1 << 30, "on a GPU, fp8"),
        (
            EngineConfig(cache=CacheConfig(kv_dtype="fp8")),
            dataclasses.replace(GPU, gpu_arch=80),
            1 << 30,
            "capability 8.9 or more, which converts it; this one has 8.0",
        ),
        (EngineConfig(cache=CacheConfig(kv_cache_bytes=2 << 30)), GPU, 1 << 30, "steps leave"),
        (EngineConfig(activation_bits=8), GPU, 1 << 30, "for a CPU, and this engine runs on a GPU"),
        (EngineConfig(), GPU, 16 * GPU_TOKEN_BYTES, "holds no block"),
    ],
)
def test_what_a_gpu_cannot_give_is_refused(config, machine, spare_bytes, said):
    with pytest.raises(ConfigError, match=said):
        resolve(config, SHAPE, machine, spare_bytes)
