# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear_add.contract import linear_add


@linear_add.shape
def shape(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, residual_TN: Tensor, *, format: Format
) -> Tensor:
    return x_TK.new_empty(residual_TN.shape)
