# SPDX-License-Identifier: Apache-2.0
"""DeepSeek V3 and its kin: V2, Kimi K2. Found by file name: `model_type: deepseek_v3`, or an alias.

Latent attention; the first layers have one feed-forward layer, the others experts and a shared one.

Shapes: T = tokens in this step (all requests packed), D = hidden, r = rotated elements of a head.
"""

from dataclasses import dataclass
from math import log, sqrt

from torch import Tensor, nn

from tokenlight.models.base import FULL_ATTENTION, FUSED, CausalLM, MoeConfig
from tokenlight.nn import (
    CacheSpec,
    Experts,
    GatedMLP,
    LatentAttention,
    LatentShape,
    RMSNorm,
    SparseMLP,
    Step,
)

WEIGHT_MAP = {name: FUSED[name] for name in ("gate_proj", "up_proj")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(MoeConfig):
    """With the keys of latent attention: see `checkpoint/latent_config.py`."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_interleave: bool
    has_split_kv_b: bool

    @property
    def latent_shape(self) -> LatentShape:
        return LatentShape(
            dim=self.hidden_size,
            num_heads=self.mesh.split("attn_tp", self.num_attention_heads, "attention heads"),
            query_rank=self.q_lora_rank,
            latent_dim=self.kv_lora_rank,
            plain_dim=self.qk_nope_head_dim,
            rotated_dim=self.qk_rope_head_dim,
            value_dim=self.v_head_dim,
        )

    @property
    def cache_specs(self) -> list[CacheSpec]:
        return [self.latent_shape.cache_spec] * self.num_hidden_layers

    @property
    def attention_scale(self) -> float:
        """Of scores. A stretched rotation makes them larger, as its `mscale_all_dim` says."""
        rope = self.rope_parameters[FULL_ATTENTION]
        growth = 1.0
        if rope["rope_type"] != "default" and rope.get("mscale_all_dim") and rope["factor"] > 1:
            growth = 0.1 * float(rope["mscale_all_dim"]) * log(rope["factor"]) + 1.0
        return growth**2 / sqrt(self.latent_shape.key_dim)


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = LatentAttention(
            c.latent_shape,
            layer=index,
            scale=c.attention_scale,
            bias=c.attention_bias,
            interleaved=c.rope_interleave,
            has_split_kv_b=c.has_split_kv_b,
        )
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = (
            SparseMLP(c.routing, Experts(c.experts_shape), shared_dim=c.shared_size_here)
            if c.moe_layers[index]
            else GatedMLP(c.hidden_size, c.inner_size_here)
        )

    def forward(self, x_TD: Tensor, cos_sin_Tr: Tensor, step: Step) -> Tensor:
        x_TD = x_TD + self.self_attn(self.input_layernorm(x_TD), cos_sin_Tr, step)
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD))


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer)
