# SPDX-License-Identifier: Apache-2.0
"""The KV blocks on the device: memory only. Which block belongs to whom, the control plane knows.

Shapes: N blocks, K heads, P tokens per block, d elements per head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenlight.kernels.kv_rows import row_elements
from tokenlight.kernels.weight_memory import map_large_pages
from tokenlight.nn import CacheSpec


def kv_bytes_per_token(layers: Sequence[CacheSpec], dtype: torch.dtype) -> int:
    """What all layers keep of one token."""
    return sum(_row_elements(spec, dtype) for spec in layers) * dtype.itemsize


def _row_elements(spec: CacheSpec, dtype: torch.dtype) -> int:
    return sum(heads * row_elements(dtype, each) for heads, each in spec.tensors)


def _make_memory(num_elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(num_elements, dtype=dtype, device=device)
    # The system commits pages only as blocks are first written. A head's rows of a block are 2 KB
    # or so: in small pages, nearly each of them would wait for a walk of the page table.
    num_bytes = num_elements * dtype.itemsize
    return map_large_pages(num_bytes)[:num_bytes].view(dtype)


class DevicePool:
    """The cache of all layers, allocated once. Unwritten blocks hold anything."""

    def __init__(
        self,
        layers: Sequence[CacheSpec],
        *,
        num_blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        pool_tokens = num_blocks * block_tokens
        num_elements = pool_tokens * sum(_row_elements(spec, dtype) for spec in layers)
        self._memory = _make_memory(num_elements, dtype, torch.device(device))
        rows = [
            [(heads, row_elements(dtype, each)) for heads, each in spec.tensors] for spec in layers
        ]
        sizes = [pool_tokens * heads * each for layer in rows for heads, each in layer]
        parts = iter(torch.split(self._memory, sizes))
        self._layers = [
            tuple(next(parts).view(num_blocks, heads, block_tokens, each) for heads, each in layer)
            for layer in rows
        ]

    def layer(self, index: int) -> tuple[Tensor, ...]:
        """A layer's tensors, in the order of its `CacheSpec`, each [N, K, P, d]."""
        return self._layers[index]

    @property
    def num_bytes(self) -> int:
        return self._memory.nbytes
