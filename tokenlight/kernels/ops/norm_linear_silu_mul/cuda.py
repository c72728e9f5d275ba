# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.cuda import Around, few_rows, many_rows, product_of, serves
from tokenlight.kernels.ops.norm_linear_silu_mul.contract import norm_linear_silu_mul
from tokenlight.kernels.ops.rms_norm import rms_norm
from tokenlight.kernels.ops.silu_mul import silu_mul


@product_of(norm_linear_silu_mul)
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
        around = Around(gain_K=gain_K, eps=eps, bias_N=bias_N, has_silu_mul=True)
        return few_rows(x_TK, weight, around)
    norm_TK = rms_norm(x_TK, gain_K, eps=eps)
    return silu_mul(many_rows(norm_TK, weight, bias_N))
