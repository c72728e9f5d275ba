# SPDX-License-Identifier: Apache-2.0
"""Layers: each calls kernel contracts, and knows no device, no scheduler and no global state."""

from tokenlight.nn.attention import Attention, AttentionShape
from tokenlight.nn.embedding import Embedding, TiedHead
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
    "KvCache",
    "Linear",
    "OffsetRMSNorm",
    "RMSNorm",
    "Rope",
    "Routing",
    "SampledRows",
    "SparseMLP",
    "Step",
    "TensorModule",
    "TiedHead",
    "probe_sampled_rows",
    "probe_step",
]
