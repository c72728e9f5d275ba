# SPDX-License-Identifier: Apache-2.0
"""Matrices from their stored rows to what the target's kernels read, in memory of their own."""

from collections.abc import Sequence

from torch import Tensor

from tokenlight import kernels
from tokenlight.weights.slot import Target
from tokenlight.weights.stored import DENSE_DTYPES, StoredTensor

_DENSE_NAMES = {dtype: name for name, dtype in DENSE_DTYPES.items()}


def pack_rows(parts: Sequence[StoredTensor], target: Target) -> tuple[Tensor, kernels.Format]:
    """Put parts of one format under each other and pack them; quantized bytes stay quantized.

    Where the target has a queue, what is packed has its numbers once that is finished.
    """
    first = parts[0]
    packed = kernels.pack_linear(
        [part.rows for part in parts],
        first.format,
        sum(part.shape[0] for part in parts),
        first.shape[1],
        device=target.device.type,
        dtype=target.dtype,
        queue=target.pack_queue,
    )
    if target.device.type == "cuda":
        weight, weight_format = packed.weight.to(target.device), packed.format
        if weight_format.is_dense and weight.dtype is not target.dtype:
            # One type throughout: GPUs multiply no two.
            weight = weight.to(target.dtype)
            weight_format = kernels.FORMATS[_DENSE_NAMES[target.dtype]]
        return weight, weight_format
    is_mapped = packed.weight.data_ptr() == first.rows.data_ptr()
    if is_mapped:
        return kernels.weight_memory.copy(packed.weight), packed.format
    return packed.weight, packed.format
