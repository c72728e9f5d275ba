# SPDX-License-Identifier: Apache-2.0
"""What the host side of Triton kernels shares: dtypes that they take and sizes of launches."""

import torch
from torch import Tensor

FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
CACHED = FLOATS | {torch.float8_e4m3fn}


def num_warps(block: int) -> int:
    """Warps for one row of `block` elements: four to sixteen elements a thread."""
    return min(max(block // 256, 1), 16)


def check_heads(*heads_THd: Tensor) -> None:
    """Refuse views that kernels would read wrongly: heads and dimensions lie one after another."""
    for x in heads_THd:
        num_heads, head_dim = x.shape[1:]
        if x.stride(2) != 1 or (num_heads > 1 and x.stride(1) != head_dim):
            raise ValueError(f"want contiguous heads, got {list(x.shape)} of strides {x.stride()}")
