# SPDX-License-Identifier: Apache-2.0
"""Weights as the device's kernels want them; on a GPU, of the activations' type."""

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels import FORMATS
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.linear.cases import make_weight

QUANTIZED = [name for name, each in FORMATS.items() if not each.is_dense]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_gpu_gets_numbers_where_it_has_no_kernel(name: str, dtype: torch.dtype) -> None:
    load_backends("cuda")
    rows, weight_format = make_weight(name, 37, 512, "cpu")
    parts = [rows[:20], rows[20:]]
    packed = kernels.pack_linear(parts, weight_format, 37, 512, device="cuda", dtype=dtype)
    assert torch.equal(packed.weight, dequantize(rows, weight_format).to(dtype))
    assert packed.format == FORMATS[{torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]]


def test_a_cpu_keeps_the_bits() -> None:
    rows, weight_format = make_weight("q4_k", 32, 512, "cpu")
    packed = kernels.pack_linear(rows, weight_format, 32, 512)
    assert (packed.weight.dtype, packed.format.name) == (torch.uint8, "q4_k")
