# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 (text). Found by file name: config.json's `model_type: gemma3`, `gemma3_text`.

Five layers with a window follow each other, then one without; both kinds have rotations of their
own. Every branch is normalised on both sides, queries and keys per head.

Shapes: T = tokens in this step (all requests packed), D = hidden, d = head dim.
"""

from functools import partial

from torch import Tensor, nn

from tokenlight import kernels
from tokenlight.models.base import FUSED, CausalLM, Config
from tokenlight.nn import Attention, GatedMLP, OffsetRMSNorm, Step

WEIGHT_MAP = FUSED


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        norm = partial(OffsetRMSNorm, c.hidden_size, eps=c.rms_norm_eps)
        self.input_layernorm = norm()
        self.self_attn = Attention(
            c.attention_shape,
            layer=index,
            window=c.window(index),
            scale=c.query_pre_attn_scalar**-0.5,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            qk_norm=partial(OffsetRMSNorm, c.head_dim, eps=c.rms_norm_eps),
        )
        self.post_attention_layernorm = norm()
        self.pre_feedforward_layernorm = norm()
        self.mlp = GatedMLP(c.hidden_size, c.inner_size_here, act_mul=kernels.gelu_tanh_mul)
        self.post_feedforward_layernorm = norm()

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        attended_TD = self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        x_TD = x_TD + self.post_attention_layernorm(attended_TD)
        return x_TD + self.post_feedforward_layernorm(
            self.mlp(self.pre_feedforward_layernorm(x_TD))
        )


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer, norm=OffsetRMSNorm, embedding_scale=c.hidden_size**0.5)
