# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.cuda import Around, few_rows, many_rows, product_of, serves
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul
from tokenlight.kernels.ops.silu_mul import silu_mul


@product_of(linear_silu_mul)
def cuda(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    if serves(x_TK):
        return few_rows(x_TK, weight, Around(bias_N=bias_N, has_silu_mul=True))
    return silu_mul(many_rows(x_TK, weight, bias_N))
