# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.cuda import Around, few_rows, many_rows, product_of, serves
from tokenlight.kernels.ops.norm_linear.contract import norm_linear
from tokenlight.kernels.ops.rms_norm import rms_norm


@product_of(norm_linear)
def cuda(
    x_TK: Tensor,
    gain_K: Tensor,
    weight: Tensor,
    bias_N: Tensor | None,
    *,
    eps: float,
    format: Format,
) -> Tensor:
    if serves(x_TK):
        around = Around(gain_K=gain_K, eps=eps, bias_N=bias_N)
        return few_rows(x_TK, weight, around)
    norm_TK = rms_norm(x_TK, gain_K, eps=eps)
    return many_rows(norm_TK, weight, bias_N)
