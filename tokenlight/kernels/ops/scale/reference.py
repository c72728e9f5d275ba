# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.scale.contract import scale


@scale.implement("reference", device="any", rank=REFERENCE)
def reference(x_TD: Tensor, *, factor: float) -> Tensor:
    rounded = torch.tensor(factor, dtype=x_TD.dtype).item()
    return (x_TD * rounded).contiguous()
