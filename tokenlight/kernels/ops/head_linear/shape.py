# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.head_linear.contract import head_linear


@head_linear.shape
def shape(x_THK: Tensor, weight: Tensor, *, format: Format) -> Tensor:
    return x_THK.new_empty(*x_THK.shape[:2], weight.shape[1])
