# SPDX-License-Identifier: Apache-2.0
"""Block formats against the gguf package, bit for bit."""

import gguf
import numpy as np
import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels.formats import FORMATS
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.formats.tile16 import TILE16, pack_tile16, unpack_tile16

QUANTIZED = [f for f in FORMATS.values() if not f.is_dense]


def random_rows(weight_format: kernels.Format, num_rows: int, k: int) -> np.ndarray:
    """Any bytes at all, but for scales that are not finite."""
    rng = np.random.default_rng(0)
    kind = gguf.GGMLQuantizationType[weight_format.name.upper()]
    floats = rng.standard_normal((num_rows, k), dtype=np.float32)
    return gguf.quants.quantize(floats, kind)


@pytest.mark.parametrize("weight_format", QUANTIZED, ids=str)
def test_block_sizes_are_those_of_gguf(weight_format: kernels.Format) -> None:
    kind = gguf.GGMLQuantizationType[weight_format.name.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == (weight_format.block_elements, weight_format.block_bytes)


@pytest.mark.parametrize("weight_format", QUANTIZED, ids=str)
def test_dequantize_is_that_of_gguf(weight_format: kernels.Format) -> None:
    rows = random_rows(weight_format, 5, 512)
    kind = gguf.GGMLQuantizationType[weight_format.name.upper()]
    ours = dequantize(torch.from_numpy(rows), weight_format).numpy()
    assert np.array_equal(ours.view(np.int32), gguf.quants.dequantize(rows, kind).view(np.int32))


@pytest.mark.parametrize("name", TILE16)
@pytest.mark.parametrize("num_rows", [16, 5, 37, 64])
def test_packing_loses_nothing(name: str, num_rows: int) -> None:
    rows = torch.from_numpy(random_rows(FORMATS[name], num_rows, 256))
    packed = pack_tile16(rows, FORMATS[name])
    assert packed.shape == rows.shape
    assert num_rows < 16 or not torch.equal(packed, rows)
    assert torch.equal(unpack_tile16(packed, TILE16[name]), rows)


def test_pack_linear_refuses_bytes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="2 rows of 64 q4_0 weights are 72 bytes, got 71"):
        kernels.pack_linear(torch.zeros(71, dtype=torch.uint8), FORMATS["q4_0"], 2, 64)
    with pytest.raises(ValueError, match="a row of 40 weights is no whole number of q4_0 blocks"):
        kernels.pack_linear(torch.zeros(71, dtype=torch.uint8), FORMATS["q4_0"], 2, 40)


def test_a_dense_weight_is_not_copied() -> None:
    dense = torch.randn(6, 10)
    packed = kernels.pack_linear(dense, FORMATS["f32"], 6, 10)
    assert packed.weight.data_ptr() == dense.data_ptr()
    assert packed.format == FORMATS["f32"]
    assert torch.equal(packed.weight, dense)
