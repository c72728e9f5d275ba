# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear.cuda import BF16, FORMAT, Around, few_rows, many_rows, serves
from tokenlight.kernels.ops.linear_add.contract import linear_add


@linear_add.implement(
    "cuda",
    device="cuda",
    needs={"sm90"},
    dtypes=BF16,
    stored=BF16,
    formats=FORMAT,
    rank=TUNED,
    is_row_invariant=False,
)
def cuda(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, residual_TN: Tensor, *, format: Format
) -> Tensor:
    if serves(x_TK):
        return few_rows(x_TK, weight, Around(bias_N=bias_N, residual_TN=residual_TN))
    return many_rows(x_TK, weight, bias_N).add_(residual_TN)
