# SPDX-License-Identifier: Apache-2.0
"""A tiny model as a file, for expectations of the real processes."""

from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, a context of 2048 tokens; 128 bytes of KV per token in float32 and layer."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expectations of real processes take minutes together: they are `make ci-slow`'s."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.slow)
