# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.add.reference import reference as add
from tokenlight.kernels.ops.rms_norm.reference import reference as rms_norm
from tokenlight.kernels.ops.sum_add_rms_norm.contract import sum_add_rms_norm


@sum_add_rms_norm.implement("reference", device="any", rank=REFERENCE)
def reference(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    total_TD, *shares = shares_TN.split(residual_TD.shape[1], dim=1)
    for share_TD in shares:
        total_TD = add(total_TD, share_TD)
    total_TD = add(residual_TD, total_TD)
    return rms_norm(total_TD, weight_D, eps=eps), total_TD
