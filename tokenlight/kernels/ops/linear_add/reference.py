# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.add.reference import reference as add
from tokenlight.kernels.ops.linear.reference import reference as linear
from tokenlight.kernels.ops.linear_add.contract import linear_add


@linear_add.implement("reference", device="any", rank=REFERENCE)
def reference(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, residual_TN: Tensor, *, format: Format
) -> Tensor:
    return add(linear(x_TK, weight, bias_N, format=format), residual_TN)
