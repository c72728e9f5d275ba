# SPDX-License-Identifier: Apache-2.0
"""The angles of a step equal transformers', up to positions far out."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tokenlight.nn import Rope


@pytest.mark.parametrize("theta", [10000.0, 1_000_000.0])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_equals_transformers(head_dim: int, theta: float) -> None:
    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    positions = torch.tensor([0, 1, 7, 4095, 131071, 262143], dtype=torch.int32)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None].long())
    half = head_dim // 2
    theirs = torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=-1)
    assert torch.equal(
        Rope(head_dim, {"rope_type": "default", "rope_theta": theta})(positions), theirs
    )
