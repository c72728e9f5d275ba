# SPDX-License-Identifier: Apache-2.0
"""A plan becomes tokens: logits are the model's, and rows that are not finite are told apart."""

import json

import numpy as np
import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig
from tokenlight.kv import DevicePool
from tokenlight.models import load_model
from tokenlight.nn import CacheSpec, Step
from tokenlight.runner import ModelRunner
from tokenlight.wire import Grammar, SamplingParams


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", format="q8_0", seed=2)


@pytest.fixture
def runner(path):
    config = EngineConfig(
        model=ModelConfig(model=str(path)), cache=CacheConfig(block_tokens=8), num_threads=1
    )
    runner = ModelRunner.load(config)
    for request_id in range(4):
        runner.add(request_id, SamplingParams(temperature=0.0))
    return runner


def test_rules_are_of_the_tokenizer_that_is_named(path, tmp_path):
    shape = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "vocab_size": 512,
        "num_attention_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(shape))
    model = ModelConfig(model=str(tmp_path), load_format="dummy", tokenizer=str(path))
    waiting = ModelRunner.load(EngineConfig(model=model, num_threads=1)).compiling(
        SamplingParams(grammar=Grammar('start: "a"', after=""))
    )
    assert waiting is not None
    assert waiting.result(60).begin(after="").vocab_size == 512


def test_facts_are_the_models(runner, path):
    facts = runner.facts
    assert (facts.max_model_tokens, facts.vocab_size, facts.block_tokens) == (2048, 512, 8)
    assert facts.num_blocks == 4 * 2048 // 8
    assert facts.kv_bytes == 4 * 2048 * 2 * 2 * 2 * 16 * 2  # layers, K and V, heads, dims, float16
    assert facts.weights_bytes == path.stat().st_size
    assert facts.load_s > 0
    assert runner.full_step_s > 0


def test_tokens_are_the_largest_logits_of_the_model(runner, path, plan_of):
    """Three requests' first tokens, each in a block of its own, beside the bare model."""
    plan = plan_of([(1, 0, 0, True), (2, 1, 0, False), (3, 2, 0, True)])
    plan.block_table = np.array([[3], [5], [9]], np.int32)
    sampled = runner.execute(plan)
    model = load_model(open_checkpoint(path))
    layers = [CacheSpec.keys_values(2, 16)] * 2
    kv = DevicePool(layers, num_blocks=1, block_tokens=8, dtype=torch.float16)
    zero = torch.zeros(1, dtype=torch.int32)
    for token, chosen in zip((0, 2), sampled.token_ids, strict=True):
        step = Step(
            token_ids_T=zero + token,
            positions_T=zero,
            query_starts=torch.tensor([0, 1], dtype=torch.int32),
            kv_lens=zero + 1,
            slots=zero,
            block_table=zero.reshape(1, 1),
            sampled_rows=zero,
            kv=kv,
        )
        with torch.inference_mode():
            assert model(step)[0].argmax().item() == chosen
    assert sampled.token_ids.dtype == np.int32
    assert len(sampled.bad_rows) == 0


def test_a_step_without_samples_gives_none(runner, plan_of):
    sampled = runner.execute(plan_of([(1, 0, 0, False)]))
    assert len(sampled.token_ids) == len(sampled.bad_rows) == 0


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_are_named(runner, plan_of, monkeypatch, poison):
    model = runner._model

    def poisoned(step):
        logits_SV = model(step)
        logits_SV[0, 3] = poison
        logits_SV[2, 511] = poison
        return logits_SV

    monkeypatch.setattr(runner, "_model", poisoned)
    sampled = runner.execute(plan_of([(i, i, 0, True) for i in range(3)]))
    assert sampled.bad_rows.tolist() == [0, 2]
