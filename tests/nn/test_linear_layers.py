# SPDX-License-Identifier: Apache-2.0
"""A fused layer is its parts side by side, whatever formats they are stored in."""

import gguf
import numpy as np
import pytest
import torch

from tokenlight.kernels import FORMATS
from tokenlight.nn import FusedLinear, Linear
from tokenlight.weights import StoredTensor, Target

CPU = Target(torch.device("cpu"), torch.float32)


def stored(array: np.ndarray, format: str) -> StoredTensor:
    kind = gguf.GGMLQuantizationType[format.upper()]
    raw = np.ascontiguousarray(gguf.quants.quantize(array, kind)).view(np.uint8)
    return StoredTensor(
        name="w",
        shape=array.shape,
        format=FORMATS[format],
        layout="gguf",
        rows=torch.from_numpy(raw.reshape(array.shape[0] if array.ndim > 1 else 1, -1)),
    )


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape, dtype=np.float32)


FORMAT_TRIPLES = {
    "one": ("q8_0", "q8_0", "q8_0"),
    "last differs": ("q4_1", "q4_1", "q8_0"),
    "middle differs": ("q4_0", "f32", "q4_0"),
    "all differ": ("f16", "bf16", "q4_1"),
}


@pytest.mark.parametrize("formats", FORMAT_TRIPLES.values(), ids=FORMAT_TRIPLES)
def test_fused_equals_its_parts(formats: tuple[str, ...]) -> None:
    rows = (48, 16, 32)
    parts = [stored(numbers(n, 64), format) for n, format in zip(rows, formats, strict=True)]
    bias = stored(numbers(sum(rows)), "f32")
    fused = FusedLinear(64, rows, bias=True)
    fused.slots()["weight"].fill(parts, CPU)
    fused.slots()["bias"].fill([bias], CPU)
    x_TK = torch.from_numpy(numbers(5, 64))
    alone = []
    for part in parts:
        layer = Linear(64, part.shape[0])
        layer.slots()["weight"].fill([part], CPU)
        alone.append(layer(x_TK))
    expected = torch.cat(alone, dim=-1) + bias.dense(torch.float32)
    assert torch.allclose(fused(x_TK), expected, rtol=0, atol=1e-5)


def test_neighbours_of_one_format_are_one_product() -> None:
    fused = FusedLinear(64, (48, 16, 32))
    parts = [
        stored(numbers(n, 64), format) for n, format in ((48, "q4_1"), (16, "q4_1"), (32, "q8_0"))
    ]
    fused.slots()["weight"].fill(parts, CPU)
    assert [run.out_features for run in fused.runs] == [64, 32]


def test_weights_are_copies_not_views_of_the_file() -> None:
    for format in ("f32", "f16", "q8_0", "q4_1"):
        part = stored(numbers(16, 64), format)
        layer = Linear(64, 16)
        layer.slots()["weight"].fill([part], CPU)
        before = layer.weight.clone()
        part.rows.zero_()
        assert torch.equal(layer.weight, before)
