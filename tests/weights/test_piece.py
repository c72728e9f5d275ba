# SPDX-License-Identifier: Apache-2.0
"""A piece of a stored tensor holds the numbers of that box, quantized ones still quantized."""

import gguf
import numpy as np
import pytest
import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.kernels import FORMATS
from tokenlight.weights import Piece, StoredTensor


def stored(numbers: np.ndarray, format: str) -> StoredTensor:
    kind = gguf.GGMLQuantizationType[format.upper()]
    raw = np.ascontiguousarray(gguf.quants.quantize(numbers, kind)).view(np.uint8)
    num_rows = int(np.prod(numbers.shape[:-1]))
    return StoredTensor(
        name="blk.0.ffn_down.weight",
        shape=numbers.shape,
        format=FORMATS[format],
        layout="gguf",
        rows=torch.from_numpy(raw.reshape(num_rows, -1)),
    )


def numbers_of(tensor: StoredTensor) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[tensor.format.name.upper()]
    rows = np.ascontiguousarray(tensor.rows.numpy())
    return gguf.quants.dequantize(rows, kind).reshape(tensor.shape)


@pytest.mark.parametrize("format", ["f32", "f16", "q8_0", "q4_1"])
@pytest.mark.parametrize(
    ("shape", "starts", "lengths"),
    [
        ((6, 128), (2, 0), (3, 128)),
        ((6, 128), (0, 32), (6, 64)),
        ((4, 6, 96), (2, 0, 32), (2, 6, 32)),
        ((128,), (64,), (32,)),
    ],
)
def test_a_box(format: str, shape: tuple, starts: tuple, lengths: tuple) -> None:
    whole = stored(np.random.default_rng(1).standard_normal(shape, dtype=np.float32), format)
    part = Piece(shape, starts, lengths).of(whole)
    box = tuple(slice(s, s + n) for s, n in zip(starts, lengths, strict=True))
    assert part.shape == lengths
    assert part.format == whole.format
    np.testing.assert_array_equal(numbers_of(part), numbers_of(whole)[box])


def test_all_of_it_is_the_tensor_itself() -> None:
    whole = stored(np.ones((4, 32), np.float32), "q8_0")
    assert Piece.all_of((4, 32)).of(whole) is whole


def test_what_another_rank_holds_is_zeros() -> None:
    whole = stored(np.ones((32,), np.float32), "f32")
    part = Piece((32,), (0,), (32,), is_held=False).of(whole)
    assert not part.dense(torch.float32).any()
    assert whole.dense(torch.float32).all()


def test_a_cut_through_a_block_names_the_tensor_the_block_and_the_place() -> None:
    whole = stored(np.ones((4, 96), np.float32), "q8_0")
    message = r"ffn_down.weight': elements 48 to 96 of its rows of 96 would cut a q8_0 block of 32"
    with pytest.raises(UnsupportedCheckpoint, match=message):
        Piece((4, 96), (0, 48), (4, 48)).of(whole)
