# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.sum_add_rms_norm.contract import sum_add_rms_norm


@sum_add_rms_norm.shape
def shape(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    return residual_TD.new_empty(residual_TD.shape), residual_TD.new_empty(residual_TD.shape)
