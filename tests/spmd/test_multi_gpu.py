# SPDX-License-Identifier: Apache-2.0
"""Two devices of one host share a model: what each logit is does not depend on it.

On GPUs with the shape of an 8B model; the same code on CPUs with little of everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.spmd.devices import Lesson, teach

# Of Qwen3-8B.
SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
}
SMALL = {
    **SHAPE,
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
NUM_TOKENS, NUM_PREFILLED = 96, 80
# Of the logits' norm: a sum over ranks is rounded once more than a sum on one.
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-5}


def check(folder: Path, config: dict[str, object], device: str, dtype: torch.dtype) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(7)
    token_ids = rng.integers(0, SMALL["vocab_size"], NUM_TOKENS).tolist()
    lesson = Lesson(folder / "model", device, dtype, token_ids, NUM_PREFILLED)
    (alone,) = teach(lesson, 1, folder / "one")
    first, second = teach(lesson, 2, folder / "two")
    assert np.array_equal(first, second), "ranks have different logits"
    assert alone.shape == (NUM_TOKENS, config["vocab_size"])
    assert alone.std(axis=1).min() > 0.0
    difference = np.linalg.norm(first - alone, axis=1) / np.linalg.norm(alone, axis=1)
    assert difference.max() < TOLERANCE[dtype]
    assert not np.array_equal(alone[0], alone[-1])


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_two_cpus_give_the_logits_of_one(tmp_path: Path) -> None:
    check(tmp_path, SMALL, "cpu", torch.float32)


@pytest.mark.multi_gpu
@pytest.mark.timeout(1800)
def test_two_gpus_give_the_logits_of_one(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The report (--junit-xml) says which GPUs reach each other's memory without the host's."""
    num_gpus = torch.cuda.device_count()
    assert num_gpus >= 2, f"torch sees {num_gpus} GPUs"
    reach = {
        pair: torch.cuda.can_device_access_peer(*pair) for pair in permutations(range(num_gpus), 2)
    }
    record_property("peer_access", {f"{a}-{b}": can for (a, b), can in reach.items()})
    check(tmp_path, SHAPE, "cuda", torch.bfloat16)
