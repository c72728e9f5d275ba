# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.mla_attention.contract import mla_attention


@mla_attention.shape
def shape(q_THC: Tensor, *others: Tensor, scale: float) -> Tensor:
    return q_THC.new_empty(q_THC.shape)
