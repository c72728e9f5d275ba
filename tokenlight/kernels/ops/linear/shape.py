# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.contract import linear


@linear.shape
def shape(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    return x_TK.new_empty(x_TK.shape[0], weight.shape[0])
