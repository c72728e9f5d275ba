# SPDX-License-Identifier: Apache-2.0
"""The KV blocks on the device: memory only. Which block belongs to whom, the control plane knows.

Shapes: L layers, N blocks, K kv heads, P tokens per block, d head dim.
"""

import torch
from torch import Tensor


def kv_bytes_per_token(
    *, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> int:
    """Keys and values of one token in all layers."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize


class DevicePool:
    """Keys and values of all layers, allocated once. Unwritten blocks hold anything."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_tokens: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (num_layers, 2, num_blocks, num_kv_heads, block_tokens, head_dim)
        # Not zeroed: on a CPU the system then commits pages only as blocks are first written.
        self._kv_L2NKPd = torch.empty(shape, dtype=dtype, device=device)
        self._layers = [(keys_values[0], keys_values[1]) for keys_values in self._kv_L2NKPd]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """The keys and the values of a layer, each [N, K, P, d]."""
        return self._layers[index]

    @property
    def num_bytes(self) -> int:
        return self._kv_L2NKPd.nbytes
