# SPDX-License-Identifier: Apache-2.0
"""A tiny random model in float32: its greedy tokens follow each other without a pattern."""

from pathlib import Path

import pytest

from tests.engine.rig import Rig
from tests.models.tiny import write_tiny_llama


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", seed=5)


@pytest.fixture(scope="session")
def rig(tiny_path: Path) -> Rig:
    return Rig.load(tiny_path)
