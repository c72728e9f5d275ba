# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention (arXiv 2405.04434): the cache keeps one latent per token.

Keys and values of all heads are projections of the latent. Here they are never made: the keys'
projection is folded into the queries, the values' into the output ("absorbed"), for prefill as for
decode, so that a token's result does not depend on which of them it was.

Shapes: T tokens, D hidden, H heads, n and r elements of a head that are not and that are rotated, v
value elements of a head, C elements of a latent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import Linear
from tokenlight.nn.module import TensorModule
from tokenlight.nn.norm import RMSNorm
from tokenlight.nn.step import CacheSpec, Step
from tokenlight.spmd import PARTIAL, REPLICATE, placed
from tokenlight.weights import (
    Slot,
    StoredTensor,
    Target,
    as_dense_like,
    dequantized_rows,
    pack_stacked,
)

# Of the norms inside, whatever the model's own is.
LATENT_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """The heads that this rank holds, and the sizes of what they project. All have latents."""

    dim: int
    num_heads: int
    query_rank: int | None
    """Elements that queries are compressed to; None: they are not."""
    latent_dim: int
    plain_dim: int
    rotated_dim: int
    value_dim: int

    @property
    def cache_spec(self) -> CacheSpec:
        return CacheSpec(((1, self.latent_dim + self.rotated_dim),))

    @property
    def key_dim(self) -> int:
        return self.plain_dim + self.rotated_dim


class OrderedLinear(Linear):
    """A linear layer whose output features are put into another order than the checkpoint's."""

    def __init__(self, in_features: int, order: Tensor, *, bias: bool = False) -> None:
        super().__init__(in_features, len(order), bias=bias)
        self.order = order

    def fill_weight(self, parts: Sequence[StoredTensor], target: Target) -> None:
        rows = parts[0].rows.reshape(self.out_features, -1)
        order = self.order.to(rows.device)
        super().fill_weight([replace(parts[0], rows=rows[order])], target)

    def fill_bias(self, parts: Sequence[StoredTensor], target: Target) -> None:
        super().fill_bias(parts, target)
        assert self.bias_N is not None
        self.bias_N = self.bias_N[self.order.to(self.bias_N.device)]


class HeadLinear(TensorModule):
    """A linear layer of each head's own."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.format = kernels.FORMATS["f32"]
        self.register_buffer("weight", None)

    def forward(self, x_THK: Tensor) -> Tensor:
        return kernels.head_linear(x_THK, self.weight, format=self.format)

    def fill(self, stored: StoredTensor, target: Target) -> None:
        """Of [H, N, K]."""
        self.weight, self.format = pack_stacked([stored], target)


class LatentAttention(TensorModule):
    """`interleaved`: the checkpoint rotates neighbours; rows are reordered so that halves are.

    `has_split_kv_b`: the checkpoint has the two projections of latents apart, each per head.
    """

    def __init__(
        self,
        shape: LatentShape,
        *,
        layer: int,
        scale: float,
        bias: bool = False,
        interleaved: bool = True,
        has_split_kv_b: bool = False,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.layer = layer
        self.scale = scale
        self.has_split_kv_b = has_split_kv_b
        rotated = _rotated_order(shape.rotated_dim, interleaved)
        q_order = _plain_then_rotated(shape, rotated)
        if shape.query_rank is None:
            self.q_proj = OrderedLinear(shape.dim, q_order)
        else:
            self.q_a_proj = Linear(shape.dim, shape.query_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(shape.query_rank, eps=LATENT_EPS)
            self.q_b_proj = OrderedLinear(shape.query_rank, q_order)
        kv_order = torch.cat([torch.arange(shape.latent_dim), shape.latent_dim + rotated])
        self.kv_a_proj_with_mqa = OrderedLinear(shape.dim, kv_order, bias=bias)
        self.kv_a_layernorm = RMSNorm(shape.latent_dim, eps=LATENT_EPS)
        self.k_b = HeadLinear()
        self.v_b = HeadLinear()
        self.o_proj = Linear(shape.num_heads * shape.value_dim, shape.dim, bias=bias)

    @placed("attn_tp", x_TD=REPLICATE, returns=PARTIAL)
    def forward(self, x_TD: Tensor, cos_sin_Tr: Tensor, step: Step) -> Tensor:
        s = self.shape
        plain, rotated = self._queries(x_TD).split(
            (s.num_heads * s.plain_dim, s.num_heads * s.rotated_dim), dim=-1
        )
        q_THn = plain.unflatten(-1, (s.num_heads, s.plain_dim))
        q_THr = rotated.unflatten(-1, (s.num_heads, s.rotated_dim))
        latent_TC, k_Tr = self.kv_a_proj_with_mqa(x_TD).split((s.latent_dim, s.rotated_dim), dim=-1)
        k_T1r = k_Tr.unflatten(-1, (1, s.rotated_dim))
        kernels.rope_(q_THr, k_T1r, cos_sin_Tr)
        (cache,) = step.kv.layer(self.layer)
        kernels.write_latent_(
            self.kv_a_layernorm(latent_TC), k_T1r, cache,
            step.positions_T, step.query_starts, step.block_table, step.slots,
        )  # fmt: skip
        out_THC = kernels.mla_attention(
            self.k_b(q_THn), q_THr, cache,
            step.query_starts, step.kv_lens, step.block_table, step.slots,
            scale=self.scale,
        )  # fmt: skip
        return self.o_proj(self.v_b(out_THC).flatten(1))

    def _queries(self, x_TD: Tensor) -> Tensor:
        if self.shape.query_rank is None:
            return self.q_proj(x_TD)
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x_TD)))

    def slots(self) -> Mapping[str, Slot]:
        s = self.shape
        if self.has_split_kv_b:
            keys, values = (s.latent_dim, s.plain_dim), (s.value_dim, s.latent_dim)
            return {
                "k_b_proj.weight": Slot(part_shapes=((s.num_heads, *keys),), fill=self._fill_k_b),
                "v_b_proj.weight": Slot(part_shapes=((s.num_heads, *values),), fill=self._fill_v_b),
            }
        num_rows = s.num_heads * (s.plain_dim + s.value_dim)
        return {
            "kv_b_proj.weight": Slot(part_shapes=((num_rows, s.latent_dim),), fill=self._fill_kv_b)
        }

    def _fill_k_b(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.k_b.fill(parts[0], target)

    def _fill_v_b(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.v_b.fill(parts[0], target)

    def _fill_kv_b(self, parts: Sequence[StoredTensor], target: Target) -> None:
        """Of each head, rows that make keys, then rows that make values."""
        s, both = self.shape, parts[0]
        rows = both.rows.reshape(s.num_heads, s.plain_dim + s.value_dim, -1)
        k_rows, v_rows = rows.split((s.plain_dim, s.value_dim), dim=1)
        values_HvC = (s.num_heads, s.value_dim, s.latent_dim)
        self.v_b.fill(replace(both, shape=values_HvC, rows=v_rows), target)
        # Keys need it turned, and the blocks of a quantized one lie along the other side.
        keys = replace(both, shape=(s.num_heads * s.plain_dim, s.latent_dim), rows=k_rows)
        turned_HCn = dequantized_rows(keys).view(s.num_heads, s.plain_dim, -1).mT
        self.k_b.fill(as_dense_like(both, turned_HCn), target)


def _rotated_order(rotated_dim: int, interleaved: bool) -> Tensor:
    """Which of a head's rotated features comes first, second, ..."""
    features = torch.arange(rotated_dim)
    return torch.cat([features[::2], features[1::2]]) if interleaved else features


def _plain_then_rotated(shape: LatentShape, rotated: Tensor) -> Tensor:
    """All heads' plain features, then all heads' rotated ones: neither needs a copy then."""
    features = torch.arange(shape.num_heads * shape.key_dim).view(shape.num_heads, -1)
    plain = features[:, : shape.plain_dim]
    return torch.cat([plain.flatten(), features[:, shape.plain_dim + rotated].flatten()])
