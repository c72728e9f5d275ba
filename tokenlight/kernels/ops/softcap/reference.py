# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.softcap.contract import softcap


@softcap.implement("reference", device="any", rank=REFERENCE)
def reference(x_TN: Tensor, *, cap: float) -> Tensor:
    return ((x_TN.float() / cap).tanh() * cap).to(x_TN.dtype).contiguous()
