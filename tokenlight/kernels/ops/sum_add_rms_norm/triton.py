# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.sum_add_rms_norm.contract import sum_add_rms_norm
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.sums import add_and_norm


@sum_add_rms_norm.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    return add_and_norm(shares_TN, residual_TD, weight_D, eps)
