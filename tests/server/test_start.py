# SPDX-License-Identifier: Apache-2.0
"""A start that cannot succeed ends at once, whatever the engine is doing."""

import asyncio
import json

import pytest

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.config import EngineConfig, ModelConfig, ServerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.server.run import start_services

SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}


async def test_a_folder_without_a_tokenizer_is_told_of_while_its_weights_are_read(
    tmp_path, monkeypatch
):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    ends: list[str] = []

    async def start(*_: object, **__: object) -> None:
        try:
            await asyncio.Event().wait()  # a model of many gigabytes
        finally:
            ends.append("given back")

    monkeypatch.setattr(AsyncLLM, "start", start)
    model = ModelConfig(model=str(tmp_path), load_format="dummy")
    async with asyncio.timeout(60):
        with pytest.raises(UnsupportedCheckpoint, match="--tokenizer"):
            await start_services(ServerConfig(), EngineConfig(model=model))
    assert ends == ["given back"]
