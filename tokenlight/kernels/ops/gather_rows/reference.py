# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.gather_rows.contract import gather_rows


@gather_rows.implement("reference", device="any", rank=REFERENCE)
def reference(x_TD: Tensor, rows_S: Tensor) -> Tensor:
    return x_TD.index_select(0, rows_S)
