# SPDX-License-Identifier: Apache-2.0
"""Causal self-attention over the paged KV cache.

Shapes: T tokens, D hidden, H heads, K kv heads, d head dim.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import FusedLinear, Linear
from tokenlight.nn.module import TensorModule
from tokenlight.nn.step import Step
from tokenlight.spmd import PARTIAL, REPLICATE, placed
from tokenlight.weights import Slot, StoredTensor, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The heads that this rank holds. Each kv head serves num_heads / num_kv_heads heads."""

    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


class Attention(TensorModule):
    """Grouped-query attention with rotary positions.

    `window` is how many tokens back a query sees, itself included; 0 for all. `scale` multiplies
    the scores; default head_dim^-0.5. `softcap` squashes them; 0 for none. `qk_norm` makes the
    norms of queries and keys, per head.
    """

    sinks: Tensor | None

    def __init__(
        self,
        shape: AttentionShape,
        *,
        layer: int,
        window: int = 0,
        scale: float | None = None,
        softcap: float = 0.0,
        qkv_bias: bool = False,
        out_bias: bool = False,
        qk_norm: Callable[[], TensorModule] | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.layer = layer
        self.window = window
        self.softcap = softcap
        self.scale = shape.head_dim**-0.5 if scale is None else scale
        q_dim, kv_dim = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.qkv_proj = FusedLinear(shape.dim, (q_dim, kv_dim, kv_dim), bias=qkv_bias)
        self.o_proj = Linear(q_dim, shape.dim, bias=out_bias)
        self.q_norm = qk_norm() if qk_norm else None
        self.k_norm = qk_norm() if qk_norm else None
        self.register_buffer("sinks", None)

    @placed("attn_tp", x_TD=REPLICATE, returns=PARTIAL)
    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        heads = (self.shape.num_heads, self.shape.num_kv_heads, self.shape.num_kv_heads)
        qkv = self.qkv_proj(x_TD).unflatten(-1, (sum(heads), self.shape.head_dim))
        q_THd, k_TKd, v_TKd = qkv.split(heads, dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q_THd, k_TKd = self.q_norm(q_THd), self.k_norm(k_TKd)
        kernels.rope_(q_THd, k_TKd, cos_sin_Td)
        k_cache, v_cache = step.kv.layer(self.layer)
        kernels.write_kv_(
            k_TKd, v_TKd, k_cache, v_cache,
            step.positions_T, step.query_starts, step.block_table, step.slots,
        )  # fmt: skip
        sinks = () if self.sinks is None else (self.sinks,)
        out_THd = kernels.paged_attention(
            q_THd, k_cache, v_cache,
            step.query_starts, step.kv_lens, step.block_table, step.slots, *sinks,
            scale=self.scale, window=self.window, softcap=self.softcap,
        )  # fmt: skip
        return self.o_proj(out_THd.flatten(1))


class SinkAttention(Attention):
    """Attention in which a score of each head joins every softmax, and has no value."""

    def slots(self) -> Mapping[str, Slot]:
        return {"sinks": Slot(part_shapes=((self.shape.num_heads,),), fill=self._fill_sinks)}

    def _fill_sinks(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.sinks = parts[0].dense(torch.float32).to(target.device)
