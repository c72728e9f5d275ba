# SPDX-License-Identifier: Apache-2.0
"""Who asks a GPU for row invariance gets no kernel that lacks it; a CPU loses none."""

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight import kernels
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.kernels import OPS
from tokenlight.runner import ModelRunner
from tokenlight.runner.ranks import share


@pytest.mark.parametrize("asked", ["on", "off"])
def test_a_cpu_keeps_its_kernels(tmp_path, asked):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(
        model=ModelConfig(model=str(path)), num_threads=1, device="cpu", row_invariance=asked
    )
    runner = ModelRunner.load(config)
    backends = {i.implementation.backend for i in runner._model.body.instructions}
    assert backends == {"cpu"}


SITE = OPS["rms_norm"].site(torch.ones(1, 1), torch.ones(1), eps=1.0)


@pytest.mark.parametrize(("asked", "chosen"), [("on", "cpu"), ("off", "reference")])
def test_what_was_tuned_here_is_ignored_by_who_asks(tmp_path, monkeypatch, asked, chosen):
    """On a CPU as well: two machines of one kind may have measured different kernels as faster."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    op = OPS["rms_norm"]
    monkeypatch.setattr(op, "_preferred", {SITE: "reference"})
    monkeypatch.setattr(op, "_bound", {})
    config = EngineConfig(
        model=ModelConfig(model=str(path)), num_threads=1, device="cpu", row_invariance=asked
    )
    body = ModelRunner.load(config)._model.body
    norms = {i.implementation.backend for i in body.instructions if i.op is op}
    assert norms == {chosen}


def test_a_gpu_gets_no_kernel_that_adds_in_any_order(monkeypatch):
    withdrawn = []
    monkeypatch.setattr(kernels, "withdraw", withdrawn.append)
    monkeypatch.setattr(kernels, "ignore_tuning", lambda: withdrawn.append("tuning"))
    share._choose_alike_everywhere("cuda")
    assert withdrawn == ["tuning", *kernels.OF_ANY_ORDER]


def test_what_is_withdrawn_is_compiled_into_nothing(monkeypatch):
    for op in kernels.OPS.values():
        monkeypatch.setattr(op, "implementations", list(op.implementations))
    kernels.withdraw("cuda")
    left = {i.backend for op in kernels.OPS.values() for i in op.implementations}
    assert "cuda" not in left
    assert {"reference", "cpu"} <= left
