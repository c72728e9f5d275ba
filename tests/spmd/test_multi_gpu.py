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
from numpy.typing import NDArray

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
# Of the logits' norm: a sum over ranks is added in another order than a sum on one.
TOLERANCE = 1e-4
# In bfloat16 each rank's share of a sum is rounded once more, so two devices may be a little
# farther from float32 than one is.
FARTHER = 1.3


def check(folder: Path, config: dict[str, object], device: str) -> None:
    """In float32 two devices give what one does; in bfloat16 they are as near to that as one is."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(7)
    token_ids = rng.integers(0, SMALL["vocab_size"], NUM_TOKENS).tolist()

    def taught(dtype: torch.dtype, num_ranks: int) -> NDArray[np.float32]:
        lesson = Lesson(folder / "model", device, dtype, token_ids, NUM_PREFILLED)
        told = teach(lesson, num_ranks, folder / f"{num_ranks} of {dtype}")
        assert all(np.array_equal(told[0], other) for other in told), "ranks have different logits"
        assert told[0].shape == (NUM_TOKENS, config["vocab_size"])
        return told[0]

    truth = taught(torch.float32, 1)
    assert truth.std(axis=1).min() > 0.0
    assert not np.array_equal(truth[0], truth[-1])
    assert _distances(taught(torch.float32, 2), truth).max() < TOLERANCE
    alone, together = (_distances(taught(torch.bfloat16, n), truth) for n in (1, 2))
    assert 0.0 < together.mean() < FARTHER * alone.mean()
    assert together.max() < FARTHER * alone.max()


def _distances(
    logits_TV: NDArray[np.float32], truth_TV: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Of each token's logits, as shares of their norm."""
    away: NDArray[np.float32] = np.linalg.norm(logits_TV - truth_TV, axis=1)
    return away / np.linalg.norm(truth_TV, axis=1)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_two_cpus_give_the_logits_of_one(tmp_path: Path) -> None:
    check(tmp_path, SMALL, "cpu")


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
    check(tmp_path, SHAPE, "cuda")
