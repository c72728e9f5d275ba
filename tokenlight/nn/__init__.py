# SPDX-License-Identifier: Apache-2.0
"""Layers: each calls kernel contracts, and knows no device, no scheduler and no global state."""

from tokenlight.nn.attention import Attention, AttentionShape, SinkAttention
from tokenlight.nn.embedding import Embedding, TiedHead
from tokenlight.nn.gpt_oss_experts import GptOssExperts
from tokenlight.nn.latent_attention import LatentAttention, LatentShape
from tokenlight.nn.linear import FusedLinear, Linear
from tokenlight.nn.mlp import GatedMLP
from tokenlight.nn.module import TensorModule
from tokenlight.nn.moe import Experts, ExpertsShape, Gate, Routing, SparseMLP
from tokenlight.nn.norm import OffsetRMSNorm, RMSNorm
from tokenlight.nn.rope import Rope
from tokenlight.nn.step import (
    CacheSpec,
    KvCache,
    SampledRows,
    Step,
    probe_sampled_rows,
    probe_step,
)

__all__ = [
    "Attention",
    "AttentionShape",
    "CacheSpec",
    "Embedding",
    "Experts",
    "ExpertsShape",
    "FusedLinear",
    "Gate",
    "GatedMLP",
    "GptOssExperts",
    "KvCache",
    "LatentAttention",
    "LatentShape",
    "Linear",
    "OffsetRMSNorm",
    "RMSNorm",
    "Rope",
    "Routing",
    "SampledRows",
    "SinkAttention",
    "SparseMLP",
    "Step",
    "TensorModule",
    "TiedHead",
    "probe_sampled_rows",
    "probe_step",
]
