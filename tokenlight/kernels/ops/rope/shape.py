# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.rope.contract import rope_


@rope_.shape
def shape(q_THd: Tensor, k_TKd: Tensor, cos_sin_Tr: Tensor) -> None:
    return None
