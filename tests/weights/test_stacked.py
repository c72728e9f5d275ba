# SPDX-License-Identifier: Apache-2.0
"""Experts' matrices, stacked and packed; where their tensors go."""

import pytest
import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.kernels import FORMATS
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.linear.cases import make_weight
from tokenlight.weights import StoredTensor, Target, pack_stacked
from tokenlight.weights.places import Place, place_of, stored_name
from tokenlight.weights.stacked import dequantized_rows, stack

TARGET = Target(torch.device("cpu"), torch.float32)
WEIGHT_MAP = {
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
    "experts.down_proj_blocks": ("experts.down_proj_mxfp4", 0),
}


def stored(name: str, n: int, k: int, num_experts: int = 3) -> StoredTensor:
    rows, _ = make_weight(name, num_experts * n, k, "cpu")
    return StoredTensor(
        name=name,
        shape=(num_experts, n, k),
        format=FORMATS[name],
        layout="gguf",
        rows=rows.view(torch.uint8).view(num_experts * n, -1),
    )


@pytest.mark.parametrize("name", ["f32", "bf16", "q8_0", "mxfp4", "q4_k"])
def test_each_expert_has_its_rows_of_both_parts(name: str) -> None:
    """16 rows are whole tiles, 24 are not."""
    gate, up = stored(name, 24, 256), stored(name, 16, 256)
    packed, packed_format = pack_stacked([gate, up], TARGET)
    assert packed.shape[:2] == (3, 40)
    rows = [dequantized_rows(part).view(part.shape) for part in (gate, up)]
    for expert, weight in enumerate(packed):
        want = torch.cat([part[expert] for part in rows])
        assert torch.equal(dequantize(weight, packed_format), want)


def test_parts_of_two_formats_become_float32() -> None:
    gate, up = stored("q8_0", 8, 64), stored("q4_0", 8, 64)
    packed, packed_format = pack_stacked([gate, up], TARGET)
    assert packed_format == FORMATS["f32"]
    assert torch.equal(packed[:, :8], dequantized_rows(gate).view(3, 8, 64))
    assert torch.equal(packed[:, 8:], dequantized_rows(up).view(3, 8, 64))


def test_experts_of_two_formats_are_refused() -> None:
    one = stored("q8_0", 8, 64, num_experts=1)
    assert stack([one, one]).shape == (2, 1, 8, 64)
    with pytest.raises(UnsupportedCheckpoint, match="stored as q8_0 and q4_0"):
        stack([one, stored("q4_0", 8, 64, num_experts=1)])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("layers.2.mlp.up_proj.weight", Place("layers.2.mlp.gate_up_proj.weight", 1)),
        (
            "layers.2.mlp.experts.17.up_proj.weight",
            Place("layers.2.mlp.experts.gate_up_proj.weight", 1, 17),
        ),
        (
            "layers.2.mlp.experts.0.down_proj.weight",
            Place("layers.2.mlp.experts.down_proj.weight", 0, 0),
        ),
        (
            "layers.2.mlp.shared_experts.gate_proj.weight",
            Place("layers.2.mlp.shared_experts.gate_up_proj.weight", 0),
        ),
        (
            "layers.2.mlp.experts.down_proj_blocks",
            Place("layers.2.mlp.experts.down_proj_mxfp4", 0),
        ),
        ("norm.weight", Place("norm.weight", 0)),
    ],
)
def test_a_tensor_goes_to_a_part_of_a_slot_and_back(name: str, place: Place) -> None:
    assert place_of(name, WEIGHT_MAP) == place
    without_number = name.replace(".17.", ".").replace("experts.0.", "experts.")
    assert stored_name(place.slot, place.part, WEIGHT_MAP) == without_number
