# SPDX-License-Identifier: Apache-2.0
"""The model that expectations of real processes are held with: a tiny one, or the one you name."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import open_checkpoint

KV_ELEMENT_BYTES = 4  # at most: float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A GGUF file, and what a test must know to ask for the right amounts."""

    path: Path
    context_tokens: int
    kv_bytes_per_token: int
    step_s: float
    """What a step of it may take on a busy machine, a full chunk of prompt tokens included."""

    def __str__(self) -> str:
        return str(self.path)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """`--expectations-model tiny` (random weights, 512 tokens), `default`, or a GGUF file."""
    chosen = request.config.getoption("--expectations-model")
    if chosen == "tiny":
        path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", context=32768)
    elif chosen == "default":
        path = request.getfixturevalue("default_model_path")
    else:
        path = Path(chosen).resolve(strict=True)
    config = open_checkpoint(path).config
    width = config["num_key_value_heads"] * config["head_dim"]
    return Model(
        path=path,
        context_tokens=config["max_position_embeddings"],
        kv_bytes_per_token=config["num_hidden_layers"] * 2 * width * KV_ELEMENT_BYTES,
        step_s=2.0 if chosen == "tiny" else 20.0,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expectations of real processes take minutes together: they are `make ci-slow`'s."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.slow)
