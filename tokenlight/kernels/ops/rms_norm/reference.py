# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.rms_norm.contract import rms_norm


@rms_norm.implement("reference", device="any", rank=REFERENCE)
def reference(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    wide = x_TD.float()
    scale = (wide.square().mean(dim=-1, keepdim=True) + eps).rsqrt()
    return (wide * scale * weight_D.float()).to(x_TD.dtype).contiguous()
