# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.cuda import Around, few_rows, many_rows, product_of, serves
from tokenlight.kernels.ops.linear_add.contract import linear_add


@product_of(linear_add)
def cuda(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, residual_TN: Tensor, *, format: Format
) -> Tensor:
    if serves(x_TK):
        return few_rows(x_TK, weight, Around(bias_N=bias_N, residual_TN=residual_TN))
    return many_rows(x_TK, weight, bias_N).add_(residual_TN)
