# SPDX-License-Identifier: Apache-2.0
"""Logits equal transformers' on tiny random llamas, however the tokens are cut into steps."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.hugging_face import logits_of, make_twin
from tests.models.rig import Rig
from tests.models.tiny import (
    Shape,
    llama_config,
    random_llama,
    write_gguf,
)
from tokenlight.checkpoint import open_checkpoint

TOLERANCE = 1e-4

SHAPES: dict[str, Shape] = {
    "gqa": {"heads": 4, "kv_heads": 2},
    "mha": {"heads": 4, "kv_heads": 4},
    "mqa": {"heads": 4, "kv_heads": 1},
    "wide-heads": {"heads": 2, "kv_heads": 1, "head_dim": 128},
    "narrow-heads": {"hidden_size": 72, "heads": 9, "kv_heads": 3},
}


def tokens(count: int, *, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, count).tolist()


def make_pair(path: Path, *, tied: bool, **shape: int) -> tuple[Rig, object]:
    config = llama_config(**{"vocab_size": 300, **shape})
    state = random_llama(config, seed=5, tied=tied)
    write_gguf(path, "llama", config, state)
    return Rig(open_checkpoint(path)), make_twin("llama", config, state)


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert float((ours - theirs).abs().max()) < TOLERANCE


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_prefill_equals_transformers(tmp_path: Path, shape: Shape, tied: bool) -> None:
    rig, twin = make_pair(tmp_path / "tiny.gguf", tied=tied, **shape)
    prompt = tokens(37, seed=1)
    assert_close(rig.step({0: prompt})[0], logits_of(twin, prompt))


def test_token_by_token_equals_transformers(tmp_path: Path) -> None:
    rig, twin = make_pair(tmp_path / "tiny.gguf", tied=True)
    prompt = tokens(19, seed=2)
    ours = torch.cat([rig.step({0: [token]})[0] for token in prompt])
    assert_close(ours, logits_of(twin, prompt))


def test_mixed_batch_equals_transformers(tmp_path: Path) -> None:
    """Decodes and prefill chunks of several requests in one step."""
    rig, twin = make_pair(tmp_path / "tiny.gguf", tied=False)
    first, second, third = tokens(21, seed=3), tokens(33, seed=4), tokens(9, seed=5)
    steps = [
        rig.step({0: first[:20]}),
        rig.step({0: first[20:], 1: second[:13], 2: third[:1]}),
        rig.step({2: third[1:], 1: second[13:]}),
    ]
    assert_close(torch.cat([steps[0][0], steps[1][0]]), logits_of(twin, first))
    assert_close(torch.cat([steps[1][1], steps[2][1]]), logits_of(twin, second))
    assert_close(torch.cat([steps[1][2], steps[2][0]]), logits_of(twin, third))


def test_recompute_after_preemption_equals_transformers(tmp_path: Path) -> None:
    """The prompt and what was generated, in other blocks and other chunks."""
    rig, twin = make_pair(tmp_path / "tiny.gguf", tied=True)
    prompt = tokens(25, seed=6)
    rig.step({0: prompt[:17], 1: tokens(8, seed=7)})
    rig.restart(0)
    ours = torch.cat([rig.step({0: prompt[:7]})[0], rig.step({0: prompt[7:]})[0]])
    assert_close(ours, logits_of(twin, prompt))
