# SPDX-License-Identifier: Apache-2.0
"""Who asks a GPU for row invariance gets no kernel that lacks it; a CPU loses none."""

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.kernels import OPS
from tokenlight.kernels.contract import TUNED
from tokenlight.runner import ModelRunner


@pytest.fixture(autouse=True)
def restored_kernels(monkeypatch):
    """What a process withdraws is gone from it."""
    for op in OPS.values():
        monkeypatch.setattr(op, "implementations", list(op.implementations))
        monkeypatch.setattr(op, "_bound", {})
        monkeypatch.setattr(op, "_preferred", {})


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
    config = EngineConfig(
        model=ModelConfig(model=str(path)), num_threads=1, device="cpu", row_invariance=asked
    )
    body = ModelRunner.load(config)._model.body
    norms = {i.implementation.backend for i in body.instructions if i.op is op}
    assert norms == {chosen}


@pytest.mark.parametrize(("asked", "chosen"), [("on", "cpu"), ("off", "hasty")])
def test_what_depends_on_a_rows_company_is_withdrawn_for_who_asks(tmp_path, asked, chosen):
    """Whoever registered it: a plugin says so of its kernel as ours do of theirs."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    op = OPS["rms_norm"]
    run = op.bind(SITE).run
    op.implement("hasty", device="cpu", rank=TUNED + 1, is_row_invariant=False)(run)
    config = EngineConfig(
        model=ModelConfig(model=str(path)), num_threads=1, device="cpu", row_invariance=asked
    )
    body = ModelRunner.load(config)._model.body
    assert {i.implementation.backend for i in body.instructions if i.op is op} == {chosen}
    assert all(i.is_row_invariant for i in op.implementations) == (asked == "on")
