# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.rope_angles.contract import rope_angles


@rope_angles.implement("reference", device="any", rank=REFERENCE)
def reference(positions_T: Tensor, frequencies: Tensor, *, magnitude: float) -> Tensor:
    angles = positions_T.float()[:, None] * frequencies
    cos_sin_Tr = torch.cat([angles.cos(), angles.sin()], dim=-1)
    return cos_sin_Tr if magnitude == 1.0 else cos_sin_Tr * magnitude
