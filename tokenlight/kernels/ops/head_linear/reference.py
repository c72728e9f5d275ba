# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.head_linear.contract import head_linear


@head_linear.implement("reference", device="any", rank=REFERENCE)
def reference(x_THK: Tensor, weight: Tensor, *, format: Format) -> Tensor:
    weight_HNK = torch.stack([dequantize(head, format) for head in weight]).double()
    return torch.einsum("thk,hnk->thn", x_THK.double(), weight_HNK).to(x_THK.dtype)
