# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.concat_columns.contract import concat_columns
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.rows import move_rows


@concat_columns.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(*parts_TN: Tensor) -> Tensor:
    widths = [part.shape[1] for part in parts_TN]
    out_TN = parts_TN[0].new_empty(len(parts_TN[0]), sum(widths))
    for out, part in zip(out_TN.split(widths, dim=1), parts_TN, strict=True):
        move_rows(out, part)
    return out_TN
