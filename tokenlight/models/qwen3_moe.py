# SPDX-License-Identifier: Apache-2.0
"""Qwen3 with experts. Found by file name: config.json's `model_type: qwen3_moe`.

Qwen3's attention; most layers have experts instead of one feed-forward layer.

Shapes: T = tokens in this step (all requests packed), D = hidden, d = head dim.
"""

from functools import partial

from torch import Tensor, nn

from tokenlight.models.base import FUSED, CausalLM
from tokenlight.models.base import MoeConfig as Config
from tokenlight.nn import Attention, Experts, GatedMLP, RMSNorm, SparseMLP, Step

WEIGHT_MAP = FUSED


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = Attention(
            c.attention_shape,
            layer=index,
            window=c.window(index),
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            qk_norm=partial(RMSNorm, c.head_dim, eps=c.rms_norm_eps),
        )
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = (
            SparseMLP(c.routing, Experts(c.experts_shape))
            if c.moe_layers[index]
            else GatedMLP(c.hidden_size, c.inner_size_here)
        )

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        x_TD = x_TD + self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD))


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer)
