# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.gather_rows.contract import gather_rows


@gather_rows.shape
def shape(x_TD: Tensor, rows_S: Tensor) -> Tensor:
    return x_TD.new_empty(rows_S.shape[0], *x_TD.shape[1:])
