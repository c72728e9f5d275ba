# SPDX-License-Identifier: Apache-2.0
"""A model's steps through Triton kernels: interpreted, and what is compiled for them when."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from benchmarks.gpu_models import write_model
from tests.runner.triton_on_cpu import triton_serves_the_cpu
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.models import load_model
from tokenlight.runner import ModelRunner
from tokenlight.runner.batch import make_trial_step
from tokenlight.runner.machine import Machine
from tokenlight.runner.memory import compile_for, make_pool, trials
from tokenlight.runner.resolve import graph_rows, model_shape, resolve

triton = pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
AbsentGpu = import_module("tests.kernels.triton_compiler").AbsentGpu
ROOT = Path(__file__).parents[2]
BF16 = torch.bfloat16


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_steps_through_interpreted_kernels_are_those_of_the_cpus() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        [*command, "--timeout", "600", "tests/runner/interpreted_steps.py"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^4 passed", done.stdout, re.M)


class Wanted:
    """Kernels that would have been compiled; none is, and so none runs."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def __call__(self, *, key: str, fn: object, **_: object) -> bool:
        if (known := (fn.name, key)) not in self.keys:  # type: ignore[attr-defined]
            self.keys.append(known)
        return True


@pytest.fixture
def wanted() -> Iterator[Wanted]:
    wanted = Wanted()
    with (
        patch.object(triton.runtime.driver, "_active", AbsentGpu(90)),
        patch.object(triton.knobs.runtime, "jit_cache_hook", wanted),
        triton_serves_the_cpu(),
    ):
        yield wanted


@pytest.mark.slow
@torch.inference_mode()
def test_no_kernel_is_compiled_once_the_engine_serves(tmp_path: Path, wanted: Wanted) -> None:
    """Trials and captures ask for all: neither another pool nor another step asks for more."""
    folder = write_model("tiny", tmp_path)
    checkpoint = open_checkpoint(folder, has_weights=False)
    config = EngineConfig(
        model=ModelConfig(model=str(folder), load_format="dummy"),
        scheduler=SchedulerConfig(
            max_num_requests=32, max_step_tokens=2048, max_model_tokens=60000, overlap=1
        ),
        device="cpu",
    )
    shape = model_shape(checkpoint)
    resolved = dataclasses.replace(
        resolve(config, shape, Machine(num_cores=1, memory_bytes=1 << 30)),
        dtype=BF16,
        kv_dtype=BF16,
        num_blocks=4100,
        graph_rows=graph_rows(32),
    )
    model = load_model(checkpoint, dtype=BF16, is_dummy=True)
    pool = make_pool(shape.layers, resolved, 128)
    compiled, columns = compile_for(model, pool, resolved), -(-60000 // resolved.block_tokens)
    for num_tokens, num_requests in trials(resolved):
        sizes = {"num_tokens": num_tokens, "num_requests": num_requests}
        compiled(make_trial_step(pool, **sizes, num_columns=columns))
    pool = make_pool(shape.layers, resolved, resolved.num_blocks)
    compiled = compile_for(model, pool, resolved)
    ModelRunner(compiled, pool, resolved)
    at_start = list(wanted.keys)
    assert 10 < len(at_start) <= 20
    for num_tokens, num_requests in ((1, 1), (17, 1), (100, 1), (2048, 1), (33, 3), (700, 31)):
        sizes = {"num_tokens": num_tokens, "num_requests": num_requests}
        compiled(make_trial_step(pool, **sizes, num_columns=columns))
    assert wanted.keys == at_start
