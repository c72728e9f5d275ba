# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.concat_columns.contract import concat_columns


@concat_columns.implement("reference", device="any", rank=REFERENCE)
def reference(*parts_TN: Tensor) -> Tensor:
    return torch.cat(parts_TN, dim=-1)
