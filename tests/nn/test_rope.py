# SPDX-License-Identifier: Apache-2.0
"""The angles of a step equal transformers', for every variant and up to positions far out."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tokenlight.kernels import FORMATS
from tokenlight.kernels.ops.rope_angles.reference import reference
from tokenlight.nn import Rope
from tokenlight.nn.rope_scaling import VARIANTS
from tokenlight.weights import StoredTensor, Target

POSITIONS = torch.tensor([0, 1, 7, 4095, 131071, 262143], dtype=torch.int32)

PARAMETERS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "large theta": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
    "yarn": {
        "rope_type": "yarn", "rope_theta": 1_000_000.0, "factor": 4.0, "truncate": True,
        "original_max_position_embeddings": 32768,
    },
    "yarn, all options": {
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "truncate": False,
        "beta_fast": 24.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 1.2,
        "original_max_position_embeddings": 4096,
    },
    "yarn, attention factor": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "truncate": True,
        "attention_factor": 1.25, "original_max_position_embeddings": 2048,
    },
}  # fmt: skip


def theirs_of(
    head_dim: int, parameters: dict[str, Any], positions: Tensor, **config: int
) -> Tensor:
    made = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        rope_parameters=dict(parameters),
        max_position_embeddings=config.get("max_position_embeddings", 1 << 18),
    )
    cos, sin = LlamaRotaryEmbedding(made)(torch.zeros(1), positions[None].long())
    half = head_dim // 2
    return torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=-1)


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_equals_transformers(head_dim: int, parameters: dict[str, Any]) -> None:
    ours = Rope(head_dim, parameters)
    theirs = theirs_of(head_dim, parameters, POSITIONS)
    # A frequency's last bit is 262143 times as much in an angle far out.
    assert torch.allclose(ours(POSITIONS[:4]), theirs[:4], rtol=0, atol=5e-4)
    assert torch.allclose(ours(POSITIONS), theirs, rtol=0, atol=2e-2)


def test_the_plain_rotation_is_bit_exact() -> None:
    """By the reference; a kernel's cosine may differ in the last bit, its angle may not."""
    for name in ("default", "large theta", "linear"):
        rope, theirs = Rope(64, PARAMETERS[name]), theirs_of(64, PARAMETERS[name], POSITIONS)
        assert torch.equal(reference(POSITIONS, rope.frequencies, magnitude=1.0), theirs), name
        assert float((rope(POSITIONS) - theirs).abs().max()) < 2e-7, name


def test_dynamic_is_transformers_at_the_full_scaled_context() -> None:
    """There, because here an angle must not depend on which other tokens are in the step."""
    parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    positions = torch.arange(4 * 128, dtype=torch.int32)
    theirs = theirs_of(64, parameters, positions, max_position_embeddings=128)
    ours = Rope(64, {**parameters, "original_max_position_embeddings": 128})
    assert torch.allclose(ours(positions), theirs, rtol=0, atol=1e-4)
    assert torch.equal(ours(positions[:3]), ours(positions)[:3])


def test_factors_of_a_file_divide_the_frequencies() -> None:
    rope = Rope(8, {"rope_type": "factors", "rope_theta": 10000.0})
    plain = Rope(8, PARAMETERS["default"]).frequencies
    factors = torch.tensor([1.0, 2.0, 4.0, 8.0])
    stored = StoredTensor(
        name="rope_freqs.weight",
        shape=(4,),
        format=FORMATS["f32"],
        layout="gguf",
        rows=factors.view(torch.uint8)[None],
    )
    slot = rope.slots()["weight"]
    assert slot.part_shapes == ((4,),)
    slot.fill([stored], Target(torch.device("cpu"), torch.float32))
    assert torch.equal(rope.frequencies, plain / factors)


def test_every_variant_is_compared() -> None:
    compared = {parameters["rope_type"] for parameters in PARAMETERS.values()}
    assert set(VARIANTS) == compared | {"dynamic", "factors"}
