# SPDX-License-Identifier: Apache-2.0
from typing import Any

from torch import Tensor

from tokenlight.kernels.ops.moe.contract import moe


@moe.shape
def shape(x_TD: Tensor, *others: Tensor | None, **options: Any) -> Tensor:
    return x_TD.new_empty(x_TD.shape)
