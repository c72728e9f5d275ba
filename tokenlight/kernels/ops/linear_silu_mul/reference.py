# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.reference import reference as linear
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul
from tokenlight.kernels.ops.silu_mul.reference import reference as silu_mul


@linear_silu_mul.implement("reference", device="any", rank=REFERENCE)
def reference(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    return silu_mul(linear(x_TK, weight, bias_N, format=format))
