# SPDX-License-Identifier: Apache-2.0
"""What the models share: their configuration, and the stack that every decoder is.

Shapes: T tokens in this step (all requests packed), S sampled rows, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from tokenlight import kernels
from tokenlight.checkpoint import Checkpoint
from tokenlight.nn import (
    AttentionShape,
    CacheSpec,
    Embedding,
    ExpertsShape,
    Linear,
    RMSNorm,
    Rope,
    Routing,
    SampledRows,
    Step,
    TensorModule,
    TiedHead,
)
from tokenlight.spmd import Mesh, can_dispatch, dispatch_pays

# checkpoint name -> (our name, part); parts are concatenated in this order
FUSED = {
    "q_proj": ("qkv_proj", 0), "k_proj": ("qkv_proj", 1), "v_proj": ("qkv_proj", 2),
    "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1),
}  # fmt: skip

# What config.json calls a layer that sees the whole context.
FULL_ATTENTION = "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """config.json's own names, complete and checked: see `checkpoint/model_config.py`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    attention_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    sliding_window: int | None
    layer_types: list[str]
    rope_parameters: Mapping[str, Mapping[str, Any]]
    query_pre_attn_scalar: float
    attn_logit_softcapping: float | None
    final_logit_softcapping: float | None
    mesh: Mesh = field(default_factory=Mesh)
    """Of the ranks that share the model; not config.json's."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Config:
        names = {each.name for each in fields(cls)} - {"mesh"}
        return cls(**{name: checkpoint.config[name] for name in names})

    @property
    def attention_shape(self) -> AttentionShape:
        return AttentionShape(
            dim=self.hidden_size,
            num_heads=self.mesh.split("attn_tp", self.num_attention_heads, "attention heads"),
            num_kv_heads=self.kv_heads_here,
            head_dim=self.head_dim,
        )

    @property
    def kv_heads_here(self) -> int:
        """Ranks that are more than kv heads share one: each has a copy."""
        num_ranks = self.mesh.size(self.mesh.roles["attn_tp"])
        if num_ranks % self.num_key_value_heads == 0:
            return 1
        return self.mesh.split("attn_tp", self.num_key_value_heads, "kv heads")

    @property
    def inner_size_here(self) -> int:
        """The inner features of a feed-forward layer that this rank has."""
        return self.mesh.split("dense_tp", self.intermediate_size, "feed-forward features")

    @property
    def vocab_here(self) -> range:
        """This rank's rows of the token table. All ranks have all that cannot be shared evenly."""
        num_ranks = self.mesh.size(self.mesh.roles["attn_tp"])
        if self.vocab_size % num_ranks:
            return range(self.vocab_size)
        num_rows = self.vocab_size // num_ranks
        first = self.mesh.index("attn_tp") * num_rows
        return range(first, first + num_rows)

    @property
    def cache_specs(self) -> list[CacheSpec]:
        """What each layer keeps of a token."""
        spec = CacheSpec.keys_values(self.kv_heads_here, self.head_dim)
        return [spec] * self.num_hidden_layers

    def window(self, layer: int) -> int:
        """How many tokens back a layer sees, itself included; 0 for all."""
        return 0 if self.layer_types[layer] == FULL_ATTENTION else self.sliding_window or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeConfig(Config):
    """With the keys of models that have experts: see `checkpoint/experts_config.py`."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int
    moe_layers: list[bool]
    scoring_func: str
    n_group: int
    topk_group: int
    group_best: int
    has_correction_bias: bool
    norm_topk_prob: bool
    routed_scaling_factor: float

    @property
    def routing(self) -> Routing:
        return Routing(
            num_experts=self.num_experts,
            top_k=self.num_experts_per_tok,
            scoring=self.scoring_func,
            num_groups=self.n_group,
            top_groups=self.topk_group,
            group_best=self.group_best,
            renormalise=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
            corrects=self.has_correction_bias,
        )

    @property
    def experts_shape(self) -> ExpertsShape:
        """The experts that this rank has, and its share of each."""
        num_here = self.mesh.split("ep", self.num_experts, "experts")
        return ExpertsShape(
            dim=self.hidden_size,
            inner_dim=self.mesh.split("moe_tp", self.moe_intermediate_size, "expert features"),
            num_experts=num_here,
            first_expert=self.mesh.index("ep") * num_here,
            is_dispatched=can_dispatch(self.mesh, has_shared=self.shared_intermediate_size > 0)
            and dispatch_pays(
                self.mesh.size(self.mesh.roles["ep"]), self.hidden_size, self.num_experts_per_tok
            ),
        )

    @property
    def shared_size_here(self) -> int:
        """This rank's inner features of the layer beside the experts."""
        return self.mesh.split("dense_tp", self.shared_intermediate_size, "shared features")


class CausalLM(TensorModule):
    """Token table, layers, norm, head. A layer is given x_TD, the step's angles and the step."""

    def __init__(
        self,
        c: Config,
        layer: Callable[[Any, int], nn.Module],
        *,
        norm: Callable[..., TensorModule] = RMSNorm,
        embedding_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.layer_types = c.layer_types
        self.softcap = c.final_logit_softcapping
        vocab = c.vocab_here
        self.embed_tokens = Embedding(
            len(vocab),
            c.hidden_size,
            scale=embedding_scale,
            first_row=None if len(vocab) == c.vocab_size else vocab.start,
        )
        self.ropes = nn.ModuleDict(
            {kind: Rope(c.head_dim, c.rope_parameters[kind]) for kind in sorted({*c.layer_types})}
        )
        self.layers = nn.ModuleList(layer(c, index) for index in range(c.num_hidden_layers))
        self.norm = norm(c.hidden_size, eps=c.rms_norm_eps)
        self.lm_head = (
            TiedHead(self.embed_tokens)
            if c.tie_word_embeddings
            else Linear(c.hidden_size, len(vocab))
        )

    def forward(self, step: Step) -> Tensor:
        """Logits of the step's sampled rows: float32 [S, V]."""
        return self.logits(SampledRows(self.hidden(step), step.sampled_rows))

    def hidden(self, step: Step) -> Tensor:
        """What the last layer gives for every token: [T, D]."""
        x_TD = self.embed_tokens(step.token_ids_T)
        angles = {kind: rope(step.positions_T) for kind, rope in self.ropes.items()}
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x_TD = layer(x_TD, angles[kind], step)
        return x_TD

    def logits(self, sampled: SampledRows) -> Tensor:
        """Of some rows of `hidden`: float32 [S, V]."""
        x_SD = self.norm(kernels.gather_rows(sampled.x_TD, sampled.rows_S))
        logits_SV = self.lm_head(x_SD).float()
        return logits_SV if self.softcap is None else kernels.softcap(logits_SV, cap=self.softcap)
