# SPDX-License-Identifier: Apache-2.0
"""What is no number among activations leaves none in the products of its row, and in no other."""

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels.ops.linear.cases import WEIGHTS, make_weight

N, K = 40, 512


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("num_rows", [1, 5, 40])
@pytest.mark.parametrize("name", WEIGHTS)
def test_linear(name: str, num_rows: int, value: float) -> None:
    weight, weight_format = make_weight(name, N, K, "cpu")
    x_TK = torch.randn(num_rows, K, generator=torch.Generator().manual_seed(1))
    clean_TN = kernels.linear(x_TK, weight, None, format=weight_format)
    row = num_rows // 2
    x_TK[row, 300] = value
    y_TN = kernels.linear(x_TK, weight, None, format=weight_format)
    assert not y_TN[row].sum().isfinite()
    others = torch.arange(num_rows) != row
    assert torch.equal(y_TN[others], clean_TN[others])
