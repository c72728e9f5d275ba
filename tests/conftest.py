# SPDX-License-Identifier: Apache-2.0
"""What every room's tests share: the default model's file, and options."""

from pathlib import Path

import pytest

from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--expectations-model`: what `tests/expectations` serves in areas E, F and G."""
    parser.addoption(
        "--expectations-model",
        default="tiny",
        help="tiny (random weights), default, or a GGUF file",
    )


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's GGUF, fetched once into the user's cache as `tokenlight serve` does."""
    return fetch_default_model(read_env().cache_dir)
