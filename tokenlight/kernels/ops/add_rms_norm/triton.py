# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm
from tokenlight.kernels.ops.sum_add_rms_norm.triton import run as of_shares
from tokenlight.kernels.triton.launch import FLOATS


@add_rms_norm.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    """A branch of one share."""
    return of_shares(x_TD, residual_TD, weight_D, eps=eps)
