# SPDX-License-Identifier: Apache-2.0
"""Who asks a GPU for row invariance gets no kernel that lacks it; a CPU loses none."""

import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight import kernels
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.runner import ModelRunner


@pytest.mark.parametrize("asked", ["on", "off"])
def test_a_cpu_keeps_its_kernels(tmp_path, asked):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(
        model=ModelConfig(model=str(path)), num_threads=1, device="cpu", row_invariance=asked
    )
    runner = ModelRunner.load(config)
    backends = {i.implementation.backend for i in runner._model.body.instructions}
    assert backends == {"cpu"}


def test_what_is_withdrawn_is_compiled_into_nothing(monkeypatch):
    for op in kernels.OPS.values():
        monkeypatch.setattr(op, "implementations", list(op.implementations))
    kernels.withdraw("cuda")
    left = {i.backend for op in kernels.OPS.values() for i in op.implementations}
    assert "cuda" not in left
    assert {"reference", "cpu"} <= left
