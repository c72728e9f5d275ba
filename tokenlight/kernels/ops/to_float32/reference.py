# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.to_float32.contract import to_float32


@to_float32.implement("reference", device="any", rank=REFERENCE)
def reference(x_TN: Tensor) -> Tensor:
    return x_TN.float().contiguous()
