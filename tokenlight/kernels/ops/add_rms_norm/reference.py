# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.add.reference import reference as add
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm
from tokenlight.kernels.ops.rms_norm.reference import reference as rms_norm


@add_rms_norm.implement("reference", device="any", rank=REFERENCE)
def reference(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    sum_TD = add(x_TD, residual_TD)
    return rms_norm(sum_TD, weight_D, eps=eps), sum_TD
