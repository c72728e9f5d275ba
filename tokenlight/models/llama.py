# SPDX-License-Identifier: Apache-2.0
"""Llama (dense). Found by file name: config.json's `model_type: llama`.

Shapes: T = tokens in this step (all requests packed), S = sampled rows, D = hidden, V = vocabulary,
d = head dim.
"""

from torch import Tensor, nn

from tokenlight.models.base import Config
from tokenlight.nn import Attention, Embedding, GatedMLP, Linear, RMSNorm, Rope, Step, TiedHead

# checkpoint name -> (our name, part); parts are concatenated in this order
WEIGHT_MAP = {
    "q_proj": ("qkv_proj", 0), "k_proj": ("qkv_proj", 1), "v_proj": ("qkv_proj", 2),
    "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1),
}  # fmt: skip


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = Attention(
            dim=c.hidden_size,
            num_heads=c.num_attention_heads,
            num_kv_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            layer=index,
        )
        self.post_attention_layernorm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = GatedMLP(c.hidden_size, c.intermediate_size)

    def forward(self, x_TD: Tensor, cos_sin_Td: Tensor, step: Step) -> Tensor:
        x_TD = x_TD + self.self_attn(self.input_layernorm(x_TD), cos_sin_Td, step)
        return x_TD + self.mlp(self.post_attention_layernorm(x_TD))


class Model(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embed_tokens = Embedding(c.vocab_size, c.hidden_size)
        self.rope = Rope(c.head_dim, theta=c.rope_theta)
        self.layers = nn.ModuleList(Layer(c, index) for index in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.lm_head = (
            TiedHead(self.embed_tokens)
            if c.tie_word_embeddings
            else Linear(c.hidden_size, c.vocab_size)
        )

    def forward(self, step: Step) -> Tensor:
        """Logits of the step's sampled rows: float32 [S, V]."""
        x_TD = self.embed_tokens(step.token_ids_T)
        cos_sin_Td = self.rope(step.positions_T)
        for layer in self.layers:
            x_TD = layer(x_TD, cos_sin_Td, step)
        return self.lm_head(self.norm(x_TD.index_select(0, step.sampled_rows))).float()
