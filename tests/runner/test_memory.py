# SPDX-License-Identifier: Apache-2.0
"""What is left of a GPU for KV, and what is said when nothing is."""

import dataclasses

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.config.flags import flags_of
from tokenlight.models import load_model
from tokenlight.nn import Step
from tokenlight.runner import ModelRunner, memory
from tokenlight.runner.machine import Machine
from tokenlight.runner.memory import (
    LARGEST_STEPS,
    SERVING,
    WEIGHTS,
    Usage,
    told_when_out_of_memory,
)
from tokenlight.runner.ranks import share
from tokenlight.runner.resolve import Limits, model_shape, resolve_limits
from tokenlight.runner.timeline import Timeline

GIB = 1 << 30
USAGE = Usage(total=80 * GIB, elsewhere=1 * GIB, weights=15 * GIB, step=4 * GIB)


def test_kv_gets_what_the_fraction_allows_less_all_else():
    assert USAGE.spare_bytes(0.9, 1 << 20) == 72 * GIB - 20 * GIB
    assert USAGE.spare_bytes(0.5, 1 << 20) == 20 * GIB


@pytest.mark.parametrize("fraction", [0.25, 0.2, 0.01])
def test_a_gpu_that_is_too_small_is_told_what_took_how_much(fraction):
    with pytest.raises(ConfigError) as refused:
        USAGE.spare_bytes(fraction, 1 << 20)
    said = refused.value.message
    for number in ("80.00 GiB", "15.00 GiB", "4.00 GiB", "1.00 GiB", str(fraction)):
        assert number in said
    for flag in ("--gpu-memory-utilization", "--max-num-batched-tokens", "--max-num-seqs"):
        assert flag in said


def test_one_block_to_use_and_one_for_padding_are_the_least():
    block_bytes = 26 * GIB
    assert USAGE.spare_bytes(0.9, block_bytes) == 2 * block_bytes
    with pytest.raises(ConfigError):
        USAGE.spare_bytes(0.9, block_bytes + 1)


@pytest.fixture
def full_gpu(monkeypatch):
    """Of 24 GiB, this process has 20 and others one."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * GIB, 24 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 20 * GIB)


def refuse(*_: object, **__: object) -> None:
    raise torch.cuda.OutOfMemoryError("tried to allocate")


TAKEN = r"of 24.00 GiB, {}, other programs and the driver 1.00 GiB, and 3.00 GiB are free; {}"


@pytest.mark.parametrize(
    ("stage", "held", "shares"),
    [
        (WEIGHTS, {}, "this stage so far 20.00 GiB"),
        (
            LARGEST_STEPS,
            {"weights": 15 * GIB},
            "weights 15.00 GiB, this stage so far 5.00 GiB",
        ),
        (
            SERVING,
            {"weights": 15 * GIB, "KV": 4 * GIB},
            "weights 15.00 GiB, KV 4.00 GiB, this stage so far 1.00 GiB",
        ),
    ],
)
def test_the_allocators_error_says_what_took_how_much_and_what_helps(full_gpu, stage, held, shares):
    with pytest.raises(ConfigError) as refused, told_when_out_of_memory(stage, held):
        refuse()
    said = refused.value.message
    assert f"not enough for {stage.what}: {TAKEN.format(shares, stage.helps)} (tried to" in said


@pytest.mark.parametrize(
    ("where", "what", "flags"),
    [
        ("tokenlight.runner.ranks.share.load_model", "weights", ["--tensor-parallel-size"]),
        ("tokenlight.runner.ranks.share.make_pool", "KV", ["--gpu-memory-utilization"]),
        ("tokenlight.runner.model_runner.StagedSteps", "captured", ["--enforce-eager"]),
    ],
)
def test_a_start_without_memory_is_told_which_flag_helps(
    tmp_path, monkeypatch, full_gpu, where, what, flags
):
    """Wherever it was that the allocator refused; here a CPU's, by a fake."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    monkeypatch.setattr(where, refuse)
    config = EngineConfig(
        model=ModelConfig(model=str(path)),
        scheduler=SchedulerConfig(overlap=1),
        device="cpu",
        num_threads=1,
    )
    with pytest.raises(ConfigError, match=f"the GPU's memory is not enough for .*{what}") as told:
        ModelRunner.load(config)
    for flag in flags:
        assert flag in told.value.message
        assert flag in {each.name for each in flags_of(EngineConfig)}


def test_the_steps_that_need_most_are_told_of_their_flags(full_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(share, "measure_usage", refuse)
    monkeypatch.setattr(share, "resolve_limits", on_a_gpu)
    monkeypatch.setattr(share, "_load_part", lambda *_: (torch.nn.Module(), None))
    monkeypatch.setattr(share.kernels, "compile_ahead", lambda device: None)
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "tiny.gguf"))
    with pytest.raises(ConfigError, match=r"lower --max-num-batched-tokens or --max-num-seqs"):
        share.load_share(checkpoint, EngineConfig(num_threads=1), rank=0, timeline=Timeline())


def on_a_gpu(*args: object) -> Limits:
    return dataclasses.replace(resolve_limits(*args), device="cuda")


def test_other_errors_pass_through():
    with pytest.raises(ValueError, match="else"), told_when_out_of_memory(WEIGHTS):
        raise ValueError("else")


@pytest.mark.parametrize(("asked_tokens", "num_captures"), [(1024, 1), (4096, 2)])
def test_usage_is_what_the_largest_steps_leave(tmp_path, monkeypatch, asked_tokens, num_captures):
    """Here on the CPU, with an allocator that is only said to have grown.

    Of a model that could serve longer requests than were asked for.
    """
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(path)
    config = EngineConfig(
        scheduler=SchedulerConfig(
            max_step_tokens=600, max_num_requests=8, max_model_tokens=asked_tokens
        ),
        device="cpu",
    )
    shape = dataclasses.replace(model_shape(checkpoint), max_model_tokens=1 << 17)
    limits = resolve_limits(config, shape, Machine(num_cores=1, memory_bytes=GIB))
    reserved = iter(2 * [15 * GIB, 18 * GIB])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: next(reserved))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 * GIB, 80 * GIB))
    for name in ("empty_cache", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    sizes = []
    compiled = memory.compile_for

    def watched(*args: object) -> object:
        model = compiled(*args)

        def run(step: Step) -> torch.Tensor:
            sizes.append((len(step.token_ids_T), len(step.slots), step.block_table.shape[1]))
            logits_SV = model(step)
            assert logits_SV.isfinite().all()
            return logits_SV

        return run

    monkeypatch.setattr(memory, "compile_for", watched)
    usage = memory.measure_usage(load_model(checkpoint), shape, limits)
    columns = asked_tokens // limits.block_tokens
    tried = [(600, 1), (600, 8), (512, 1), (256, 8), (8, 8)]
    assert sizes == [(*each, columns) for each in tried]
    assert (usage.total, usage.elsewhere, usage.weights) == (80 * GIB, 2 * GIB, 15 * GIB)
    # The pool of the trial is not part of what a step needs; captured steps are.
    captured = usage.step - 3 * GIB
    assert abs(captured - num_captures * (256 << 20)) < 10 << 20
    # The leading rank of several groups holds the logits of all.
    of_three = memory.measure_usage(load_model(checkpoint), shape, limits, num_groups=3)
    vocab_size = int(checkpoint.config["vocab_size"])
    assert of_three.step - usage.step == 2 * 5 * (4 * limits.max_num_requests * vocab_size)
