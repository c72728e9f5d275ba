# SPDX-License-Identifier: Apache-2.0
"""GGUF files that transformers reads by itself: nothing from file to logits is shared with us."""

from pathlib import Path

import pytest
import torch

from tests.models.hugging_face import logits_of, random_state, read_gguf
from tests.models.rig import Rig
from tests.models.test_every_model import VARIANTS
from tests.models.tiny import write_gguf
from tokenlight.checkpoint import open_checkpoint

NOT_READ = ("head_dim", "query_pre_attn_scalar")
PROMPT = [(11 * index) % 300 for index in range(30)]


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3"])
def test_tiny_files(tmp_path: Path, name: str) -> None:
    variant = VARIANTS[name]
    state = random_state(variant.model_type, variant.config, seed=6)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, variant.architecture, variant.config, state)
    guessed = {key: variant.config[key] for key in NOT_READ if key in variant.config}
    theirs = logits_of(read_gguf(path, **guessed), PROMPT)
    ours = Rig(open_checkpoint(path)).step({0: PROMPT})[0]
    assert float((ours - theirs).abs().max()) < 1e-4
    assert float(theirs.std()) > 1


@pytest.mark.slow
def test_the_default_model(default_model_path: Path) -> None:
    """A file of llama.cpp's own making; kernels may round activations to 15 bits."""
    theirs = logits_of(read_gguf(default_model_path), PROMPT)
    ours = Rig(open_checkpoint(default_model_path)).step({0: PROMPT})[0]
    assert float((ours - theirs).norm() / theirs.norm()) < 0.001
    # Where two tokens are nearer to each other than rounding is, either may be the first.
    best, second = theirs.topk(2).values.unbind(-1)
    is_clear = best - second > 2 * (ours - theirs).abs().amax(-1)
    assert int(is_clear.sum()) >= len(PROMPT) - 3
    assert torch.equal(ours.argmax(-1)[is_clear], theirs.argmax(-1)[is_clear])
