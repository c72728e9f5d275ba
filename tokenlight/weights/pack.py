# SPDX-License-Identifier: Apache-2.0
"""Matrices from their stored rows to what the target's kernels read, in memory of their own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.weights.slot import Target
from tokenlight.weights.stored import StoredTensor


def pack_rows(parts: Sequence[StoredTensor], target: Target) -> tuple[Tensor, kernels.Format]:
    """Put parts of one format under each other and pack them; quantized bytes stay quantized."""
    first = parts[0]
    rows = first.rows if len(parts) == 1 else torch.cat([part.rows for part in parts])
    packed = kernels.pack_linear(
        rows,
        first.format,
        sum(part.shape[0] for part in parts),
        first.shape[1],
        device=target.device.type,
        dtype=target.dtype,
    )
    is_mapped = packed.weight.data_ptr() == first.rows.data_ptr()
    weight = packed.weight.clone() if is_mapped else packed.weight
    return weight.to(target.device), packed.format
