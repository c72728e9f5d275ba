# SPDX-License-Identifier: Apache-2.0
"""Granite 3 (dense). Found by file name: config.json's `model_type: granite`.

A llama whose embeddings, scores, branches and logits are each scaled by a number of its own.

Shapes: T = tokens in this step (all requests packed), D = hidden, S = sampled rows, V = vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from tokenlight.models import base
from tokenlight.models.base import FUSED, CausalLM
from tokenlight.nn import Attention, GatedMLP, RMSNorm, SampledRows, Step

WEIGHT_MAP = FUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(base.Config):
    """With what is Granite's alone."""

    embedding_multiplier: float
    attention_multiplier: float
    residual_multiplier: float
    logits_scaling: float


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.residual_multiplier = c.residual_multiplier
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = Attention(
            c.attention_shape,
            layer=index,
            scale=c.attention_multiplier,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
        )
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = GatedMLP(c.hidden_size, c.inner_size_here, bias=c.mlp_bias)

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        attended_TD = self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        x_TD = x_TD + attended_TD * self.residual_multiplier
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD)) * self.residual_multiplier


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer, embedding_scale=c.embedding_multiplier)
        self.logits_scale = 1 / c.logits_scaling

    def logits(self, sampled: SampledRows) -> Tensor:
        logits_SV: Tensor = super().logits(sampled) * self.logits_scale
        return logits_SV
