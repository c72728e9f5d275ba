# SPDX-License-Identifier: Apache-2.0
"""A row of the KV cache: numbers of the cache's dtype, or int8 with a scale.

An int8 row of d numbers is d + 4 bytes: whole numbers q, |q| <= 127, then the float32 that they are
multiples of.
"""

import torch
from torch import Tensor

_SCALE_BYTES = 4


def row_elements(dtype: torch.dtype, width: int) -> int:
    """Elements that a row of `width` numbers takes in a cache of this dtype."""
    return width + _SCALE_BYTES if dtype is torch.int8 else width


def store_rows(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Float rows as a cache keeps them; the last dimension is the row's."""
    if dtype is not torch.int8:
        return rows.to(dtype)
    rows = rows.float()
    most = rows.abs().amax(-1, keepdim=True)
    is_finite = most.isfinite()
    scale = torch.where(is_finite, most / 127, torch.nan)
    inverse = torch.where(is_finite & (most > 1e-30), 127 / most, 0.0)
    quants = torch.where(is_finite, (rows * inverse).round(), 0.0).to(torch.int8)
    return torch.cat([quants, scale.contiguous().view(torch.int8)], dim=-1)


def load_rows(stored: Tensor) -> Tensor:
    """The inverse, as float32."""
    if stored.dtype is not torch.int8:
        return stored.float()
    scale = stored[..., -_SCALE_BYTES:].contiguous().view(torch.float32)
    return stored[..., :-_SCALE_BYTES].float() * scale
