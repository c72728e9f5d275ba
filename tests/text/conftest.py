# SPDX-License-Identifier: Apache-2.0
"""The default model's tokenizer, once."""

from pathlib import Path

import pytest

from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.text import Tokenizer


@pytest.fixture(scope="session")
def checkpoint(default_model_path: Path) -> Checkpoint:
    return open_checkpoint(default_model_path)


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer.from_checkpoint(checkpoint)
