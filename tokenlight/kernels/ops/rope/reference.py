# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.rope.contract import rope_


@rope_.implement("reference", device="any", rank=REFERENCE)
def reference(q_THd: Tensor, k_TKd: Tensor, cos_sin_Tr: Tensor) -> None:
    cos, sin = cos_sin_Tr[:, None].chunk(2, dim=-1)
    for x in (q_THd, k_TKd):
        first, second = x[..., : cos_sin_Tr.shape[1]].float().chunk(2, dim=-1)
        rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        x[..., : cos_sin_Tr.shape[1]] = rotated.to(x.dtype)
