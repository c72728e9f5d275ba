# SPDX-License-Identifier: Apache-2.0
"""Experts' matrices, stacked and packed; where their tensors go."""

from dataclasses import replace

import pytest
import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.kernels import FORMATS, PackQueue
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


@pytest.mark.parametrize("num_up_rows", [16, 24])
@pytest.mark.parametrize("name", ["f32", "bf16", "q8_0", "mxfp4", "q4_k"])
def test_each_expert_has_its_rows_of_both_parts(name: str, num_up_rows: int) -> None:
    """24 and 24 rows are whole tiles together, 24 and 16 are not."""
    gate, up = stored(name, 24, 256), stored(name, num_up_rows, 256)
    packed, packed_format = pack_stacked([gate, up], TARGET)
    assert packed.shape[:2] == (3, 24 + num_up_rows)
    rows = [dequantized_rows(part).view(part.shape) for part in (gate, up)]
    for expert, weight in enumerate(packed):
        want = torch.cat([part[expert] for part in rows])
        assert torch.equal(dequantize(weight, packed_format), want)


@pytest.mark.parametrize("num_rows", [8, 16])
def test_a_queue_keeps_what_nobody_else_does(num_rows: int) -> None:
    """Layers fill from tensors that they have put together and drop at once."""

    def pack_all(target: Target) -> list[torch.Tensor]:
        packed = []
        for number in range(12):
            part = stored("q8_0", num_rows, 4096)
            part = replace(part, rows=part.rows ^ number)
            packed.append(pack_stacked([part, part], target)[0])
        return packed

    queue = PackQueue()
    got = pack_all(TARGET._replace(pack_queue=queue))
    queue.finish()
    for one, other in zip(got, pack_all(TARGET), strict=True):
        assert torch.equal(one, other)


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
