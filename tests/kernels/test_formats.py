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


def gguf_type(weight_format: kernels.Format) -> gguf.GGMLQuantizationType:
    return next(t for t in gguf.GGMLQuantizationType if t.name.lower() == weight_format.name)


def random_rows(weight_format: kernels.Format, num_rows: int, k: int) -> np.ndarray:
    """Any bytes at all: every code, and scales of every size, infinite and NaN included."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (num_rows, weight_format.row_bytes(k)), dtype=np.uint8)


@pytest.mark.parametrize("weight_format", QUANTIZED, ids=str)
def test_block_sizes_are_those_of_gguf(weight_format: kernels.Format) -> None:
    sizes = (weight_format.block_elements, weight_format.block_bytes)
    assert gguf.GGML_QUANT_SIZES[gguf_type(weight_format)] == sizes


@pytest.mark.parametrize("weight_format", QUANTIZED, ids=str)
def test_dequantize_is_that_of_gguf(weight_format: kernels.Format) -> None:
    rows = random_rows(weight_format, 5, 4096)
    ours = dequantize(torch.from_numpy(rows), weight_format).numpy()
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(rows, gguf_type(weight_format))
    same = (ours.view(np.int32) == theirs.view(np.int32)) | (np.isnan(ours) & np.isnan(theirs))
    assert same.all()
    assert np.isfinite(ours).mean() > 0.8


@pytest.mark.parametrize("name", TILE16)
@pytest.mark.parametrize("num_rows", [16, 5, 37, 64])
def test_packing_loses_nothing(name: str, num_rows: int) -> None:
    rows = torch.from_numpy(random_rows(FORMATS[name], num_rows, 768))
    packed = pack_tile16([rows], FORMATS[name])
    assert packed.shape == (num_rows, TILE16[name].row_bytes(768))
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
