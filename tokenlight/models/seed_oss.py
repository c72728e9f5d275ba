# SPDX-License-Identifier: Apache-2.0
"""Seed-OSS (dense). Found by file name: config.json's `model_type: seed_oss`.

Queries, keys and values have biases, their output has none.

Shapes: T = tokens in this step (all requests packed), D = hidden, d = head dim.
"""

from torch import Tensor, nn

from tokenlight.models.base import FUSED, CausalLM, Config
from tokenlight.nn import Attention, GatedMLP, RMSNorm, Step

WEIGHT_MAP = FUSED


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = Attention(c.attention_shape, layer=index, qkv_bias=c.attention_bias)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = GatedMLP(c.hidden_size, c.inner_size_here, bias=c.mlp_bias)

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        x_TD = x_TD + self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD))


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer)
