# SPDX-License-Identifier: Apache-2.0
"""gpt-oss. Found by file name: config.json's `model_type: gpt_oss`.

Every other layer has a window; each head has a sink that takes attention away. All layers have
experts, whose gates are clamped.

Shapes: T = tokens in this step (all requests packed), D = hidden, d = head dim.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from tokenlight.models.base import FUSED, CausalLM, MoeConfig
from tokenlight.nn import Experts, Gate, GptOssExperts, RMSNorm, SinkAttention, SparseMLP, Step

WEIGHT_MAP = {
    **FUSED,
    "router": ("gate", 0),
    "experts.gate_up_proj_blocks": ("experts.gate_up_proj_mxfp4", 0),
    "experts.gate_up_proj_scales": ("experts.gate_up_proj_mxfp4", 1),
    "experts.down_proj_blocks": ("experts.down_proj_mxfp4", 0),
    "experts.down_proj_scales": ("experts.down_proj_mxfp4", 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(MoeConfig):
    """With what is gpt-oss's alone: see `checkpoint/experts_config.py`."""

    swiglu_alpha: float
    swiglu_limit: float
    experts_stored: str

    @property
    def experts(self) -> Experts:
        """Folders of Hugging Face's kind keep them in ways of their own."""
        gate = Gate(limit=self.swiglu_limit, alpha=self.swiglu_alpha, shift=1.0)
        if self.experts_stored == "separate":
            return Experts(self.experts_shape, bias=True, gate=gate)
        is_mxfp4 = self.experts_stored == "mxfp4"
        return GptOssExperts(self.experts_shape, is_mxfp4=is_mxfp4, gate=gate)


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = SinkAttention(
            c.attention_shape,
            layer=index,
            window=c.window(index),
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
        )
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = SparseMLP(c.routing, c.experts, router_bias=True)

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        x_TD = x_TD + self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD))


class Model(CausalLM):
    def __init__(self, c: Config) -> None:
        super().__init__(c, Layer)
