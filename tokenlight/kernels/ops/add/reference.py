# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.add.contract import add


@add.implement("reference", device="any", rank=REFERENCE)
def reference(x_TD: Tensor, y_TD: Tensor) -> Tensor:
    return (x_TD + y_TD).contiguous()
