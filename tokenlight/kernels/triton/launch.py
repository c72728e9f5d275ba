# SPDX-License-Identifier: Apache-2.0
"""What the host side of Triton kernels shares: dtypes that they take and sizes of launches."""

import torch

FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
CACHED = FLOATS | {torch.float8_e4m3fn}


def num_warps(block: int) -> int:
    """Warps for one row of `block` elements: four to sixteen elements a thread."""
    return min(max(block // 256, 1), 16)
