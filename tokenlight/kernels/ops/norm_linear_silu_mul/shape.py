# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.norm_linear_silu_mul.contract import norm_linear_silu_mul


@norm_linear_silu_mul.shape
def shape(
    x_TK: Tensor,
    gain_K: Tensor,
    weight: Tensor,
    bias_N: Tensor | None,
    *,
    eps: float,
    format: Format,
) -> Tensor:
    return x_TK.new_empty(x_TK.shape[0], weight.shape[0] // 2)
