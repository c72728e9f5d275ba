# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.to_float32.contract import to_float32
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.rows import move_rows


@to_float32.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TN: Tensor) -> Tensor:
    out_TN = torch.empty(x_TN.shape, dtype=torch.float32, device=x_TN.device)
    move_rows(out_TN, x_TN)
    return out_TN
