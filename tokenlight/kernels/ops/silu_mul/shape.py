# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.silu_mul.contract import silu_mul


@silu_mul.shape
def shape(gate_up_T2F: Tensor) -> Tensor:
    return gate_up_T2F.new_empty(gate_up_T2F.shape[0], gate_up_T2F.shape[1] // 2)
