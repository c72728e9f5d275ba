# SPDX-License-Identifier: Apache-2.0
"""Causal self-attention over the paged KV cache.

Shapes: T tokens, D hidden, H heads, K kv heads, d head dim.
"""

from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import FusedLinear, Linear
from tokenlight.nn.module import TensorModule
from tokenlight.nn.step import Step


class Attention(TensorModule):
    """Grouped-query attention with rotary positions."""

    def __init__(
        self, *, dim: int, num_heads: int, num_kv_heads: int, head_dim: int, layer: int
    ) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5
        kv_dim = num_kv_heads * head_dim
        self.qkv_proj = FusedLinear(dim, (num_heads * head_dim, kv_dim, kv_dim))
        self.o_proj = Linear(num_heads * head_dim, dim)

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        qkv = self.qkv_proj(x_TD).unflatten(-1, (-1, self.head_dim))
        q_THd, k_TKd, v_TKd = qkv.split(
            (self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1
        )
        kernels.rope_(q_THd, k_TKd, cos_sin_Td)
        k_cache, v_cache = step.kv.layer(self.layer)
        kernels.write_kv_(
            k_TKd, v_TKd, k_cache, v_cache,
            step.positions_T, step.query_starts, step.block_table, step.slots,
        )  # fmt: skip
        out_THd = kernels.paged_attention(
            q_THd, k_cache, v_cache,
            step.query_starts, step.kv_lens, step.block_table, step.slots,
            scale=self.scale,
        )  # fmt: skip
        return self.o_proj(out_THd.flatten(1))
