# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.sums import add_and_norm


@add_rms_norm.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    return add_and_norm(x_TD, residual_TD, weight_D, eps)
