# SPDX-License-Identifier: Apache-2.0
"""A program as native code gives the bits that it gives instruction by instruction in Python."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import open_checkpoint
from tokenlight.kv import DevicePool
from tokenlight.models import CompiledModel, cache_specs, compile_model, load_model
from tokenlight.nn import SampledRows, Step
from tokenlight.spmd import Limits, NativeProgram

LIMITS = Limits(T=48, S=8)
BLOCK_TOKENS = 4


def integers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def make_pool(path) -> DevicePool:
    specs = cache_specs(open_checkpoint(path))
    return DevicePool(specs, num_blocks=64, block_tokens=BLOCK_TOKENS, dtype=torch.float16)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_llama(tmp_path_factory.mktemp("native") / "m.gguf", format="Q4_1")


@pytest.fixture(scope="module")
def model(path) -> CompiledModel:
    return compile_model(load_model(open_checkpoint(path)), make_pool(path), limits=LIMITS)


def step_of(pool: DevicePool, *lengths: int, seed: int = 0) -> Step:
    """So many new tokens of each request, which is in the blocks of its own row."""
    total, starts = sum(lengths), [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    ids = torch.randint(512, (total,), generator=torch.Generator().manual_seed(seed))
    columns = 64 // len(lengths)
    return Step(
        token_ids_T=ids.int(),
        positions_T=torch.cat([torch.arange(n) for n in lengths]).int(),
        query_starts=integers(*starts),
        kv_lens=integers(*lengths),
        slots=integers(*range(len(lengths))),
        block_table=torch.arange(columns * len(lengths)).view(-1, columns).int(),
        sampled_rows=integers(*(end - 1 for end in starts[1:])),
        kv=pool,
    )


def in_python(model: CompiledModel, step: Step) -> Tensor:
    return model.head.run(SampledRows(model.body.run(step), step.sampled_rows))


@pytest.mark.parametrize("lengths", [(1,), (1, 1, 1), (7, 1, 20), (48,)])
def test_bits_are_those_of_python(model, path, lengths) -> None:
    native, plain = make_pool(path), make_pool(path)
    got = model(step_of(native, *lengths))
    want = in_python(model, step_of(plain, *lengths))
    assert got.isfinite().all()
    assert torch.equal(got, want)
    written = -(-lengths[0] // BLOCK_TOKENS)
    for ours, theirs in zip(native.layer(0), plain.layer(0), strict=True):
        first, rest = (lengths[0] - 1) // BLOCK_TOKENS, (lengths[0] - 1) % BLOCK_TOKENS
        assert torch.equal(ours[: written - 1], theirs[: written - 1])
        assert torch.equal(ours[first, :, : rest + 1], theirs[first, :, : rest + 1])


def test_results_outlive_the_next_step(model, path) -> None:
    pool = make_pool(path)
    first = model(step_of(pool, 5))
    kept = first.clone()
    model(step_of(pool, 9, seed=1))
    assert torch.equal(first, kept)


def test_no_instruction_of_a_llama_is_left_to_python(model, path) -> None:
    step = step_of(make_pool(path), 3)
    assert NativeProgram(model.body).in_python(step) == []
    assert NativeProgram(model.head).in_python(SampledRows(model.hidden(step), integers(0))) == []


def test_what_has_no_entry_runs_from_python(model, path) -> None:
    instructions = tuple(
        replace(i, implementation=replace(i.implementation, entry=None))
        if i.op.name in ("silu_mul", "linear_silu_mul", "add_rms_norm", "embedding")
        else i
        for i in model.body.instructions
    )
    mixed = NativeProgram(replace(model.body, instructions=instructions))
    pools = make_pool(path), make_pool(path)
    # As many rows again, of other tokens; then more, then fewer.
    for seed, lengths in enumerate([(6, 3), (6, 3), (20, 1), (1, 1)]):
        ours, theirs = (step_of(pool, *lengths, seed=seed) for pool in pools)
        assert torch.equal(mixed.run(ours), model.hidden(theirs))
    assert mixed.in_python(ours)


def test_an_index_outside_its_table_is_refused(model, path) -> None:
    step = step_of(make_pool(path), 4)
    with pytest.raises(IndexError, match="block"):
        model.hidden(replace(step, block_table=step.block_table + 64))
    with pytest.raises(IndexError, match="512"):
        model.hidden(replace(step, token_ids_T=step.token_ids_T + 512))
    with pytest.raises(IndexError, match="row 4"):
        model.logits(model.hidden(step), integers(4))


def test_compiling_does_not_import_the_compiler_of_torch(path) -> None:
    """Which products on device "meta" would: 150 MB, and a second of every start."""
    script = f"""if True:
        import sys
        from pathlib import Path
        from tests.spmd.test_native import LIMITS, make_pool
        from tokenlight.checkpoint import open_checkpoint
        from tokenlight.models import compile_model, load_model

        path = Path({str(path)!r})
        compile_model(load_model(open_checkpoint(path)), make_pool(path), limits=LIMITS)
        sys.exit("torch._dynamo" in sys.modules)
    """
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_step_beyond_the_limits_is_refused(model, path) -> None:
    with pytest.raises(ValueError, match="49 tokens"):
        model.hidden(step_of(make_pool(path), 49))
