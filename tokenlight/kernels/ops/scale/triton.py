# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.scale.contract import scale
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.rows import move_rows


@scale.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TD: Tensor, *, factor: float) -> Tensor:
    out_TD = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    move_rows(out_TD, x_TD, factor=torch.tensor(factor, dtype=x_TD.dtype).item())
    return out_TD
