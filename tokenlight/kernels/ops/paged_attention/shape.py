# SPDX-License-Identifier: Apache-2.0
from typing import Any

from torch import Tensor

from tokenlight.kernels.ops.paged_attention.contract import paged_attention


@paged_attention.shape
def shape(q_THd: Tensor, *others: Tensor | None, **options: Any) -> Tensor:
    return q_THd.new_empty(q_THd.shape)
