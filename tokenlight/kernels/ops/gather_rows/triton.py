# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.gather_rows.contract import gather_rows
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.rows import move_rows


@gather_rows.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TD: Tensor, rows_S: Tensor) -> Tensor:
    out_SD = x_TD.new_empty(len(rows_S), x_TD.shape[1])
    move_rows(out_SD, x_TD, rows_T=rows_S.contiguous())
    return out_SD
