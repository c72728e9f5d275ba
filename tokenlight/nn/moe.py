# SPDX-License-Identifier: Apache-2.0
"""Layers of experts: a router chooses a few for each token, and their answers are added up.

Shapes: T tokens, D hidden, E experts, A chosen experts per token, F an expert's inner features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import Linear
from tokenlight.nn.mlp import GatedMLP
from tokenlight.nn.module import TensorModule
from tokenlight.spmd import PARTIAL, REPLICATE, placed
from tokenlight.weights import Slot, StoredTensor, Target, pack_stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How experts are chosen; the words are those of `kernels.route`."""

    num_experts: int
    top_k: int
    scoring: str = "softmax"
    num_groups: int = 1
    top_groups: int = 1
    group_best: int = 1
    renormalise: bool = False
    scale: float = 1.0
    corrects: bool = False
    """Whether a learnt bias is added to the scores, for the choice alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsShape:
    """The experts that this rank holds, and the features of each that it holds."""

    dim: int
    inner_dim: int
    num_experts: int
    first_expert: int = 0
    is_dispatched: bool = False
    """Whether tokens go to their experts' ranks, and the ranks of a token are not those of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """gate * sigmoid(alpha * gate) * (up + shift), both first held to `limit`; 0 for none."""

    limit: float = 0.0
    alpha: float = 1.0
    shift: float = 0.0


class Experts(TensorModule):
    """Gated feed-forward layers, of which each token sees those that it was routed to."""

    gate_up: Tensor
    down: Tensor
    gate_up_bias: Tensor | None
    down_bias: Tensor | None

    def __init__(
        self, shape: ExpertsShape, *, bias: bool = False, gate: Gate | None = None
    ) -> None:
        super().__init__()
        self.shape = shape
        self.gate = gate or Gate()
        self.has_bias = bias
        self.format = self.down_format = kernels.FORMATS["f32"]
        for name in ("gate_up", "down", "gate_up_bias", "down_bias"):
            self.register_buffer(name, None)

    @placed("all", x_TD=REPLICATE, experts_TA=REPLICATE, weights_TA=REPLICATE, returns=PARTIAL)
    def forward(self, x_TD: Tensor, experts_TA: Tensor, weights_TA: Tensor) -> Tensor:
        return kernels.moe(
            x_TD,
            experts_TA,
            weights_TA,
            self.gate_up,
            self.down,
            self.gate_up_bias,
            self.down_bias,
            format=self.format,
            down_format=self.down_format,
            first_expert=self.shape.first_expert,
            limit=self.gate.limit,
            alpha=self.gate.alpha,
            shift=self.gate.shift,
        )

    def slots(self) -> Mapping[str, Slot]:
        """Gate and up are two parts; each has all experts."""
        s = self.shape
        inner, outer = (s.num_experts, s.inner_dim, s.dim), (s.num_experts, s.dim, s.inner_dim)
        slots = {
            "gate_up_proj.weight": Slot(part_shapes=(inner, inner), fill=self.fill_gate_up),
            "down_proj.weight": Slot(part_shapes=(outer,), fill=self.fill_down),
        }
        if self.has_bias:
            slots |= {
                "gate_up_proj.bias": Slot(part_shapes=(inner[:2],) * 2, fill=self._fill_bias),
                "down_proj.bias": Slot(part_shapes=(outer[:2],), fill=self.fill_down_bias),
            }
        return slots

    def fill_gate_up(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.gate_up, self.format = pack_stacked(parts, target)

    def fill_down(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.down, self.down_format = pack_stacked(parts, target)

    def _fill_bias(self, parts: Sequence[StoredTensor], target: Target) -> None:
        both = [part.dense(torch.float32) for part in parts]
        self.gate_up_bias = torch.cat(both, dim=1).to(target.device)

    def fill_down_bias(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.down_bias = parts[0].dense(torch.float32).to(target.device)


class Meeting(TensorModule):
    """Brings all tokens to every rank: once, for the router and all experts."""

    @placed("all", x_TD=REPLICATE)
    def forward(self, x_TD: Tensor) -> Tensor:
        return x_TD


class SparseMLP(TensorModule):
    """Routed experts, and a layer beside them that every token sees, if `shared_dim` is not 0."""

    e_score_correction_bias: Tensor | None

    def __init__(
        self,
        routing: Routing,
        experts: Experts,
        *,
        shared_dim: int = 0,
        router_bias: bool = False,
    ) -> None:
        super().__init__()
        dim = experts.shape.dim
        self.routing = routing
        self.gate = Linear(dim, routing.num_experts, bias=router_bias)
        self.experts = experts
        self.shared_experts = GatedMLP(dim, shared_dim) if shared_dim else None
        self.meeting = None if experts.shape.is_dispatched else Meeting()
        self.register_buffer("e_score_correction_bias", None)

    def forward(self, x_TD: Tensor) -> Tensor:
        r = self.routing
        if self.meeting is not None:
            x_TD = self.meeting(x_TD)
        experts_TA, weights_TA = kernels.route(
            self.gate(x_TD),
            self.e_score_correction_bias,
            top_k=r.top_k,
            scoring=r.scoring,
            num_groups=r.num_groups,
            top_groups=r.top_groups,
            group_best=r.group_best,
            renormalise=r.renormalise,
            scale=r.scale,
        )
        y_TD = self.experts(x_TD, experts_TA, weights_TA)
        return y_TD if self.shared_experts is None else y_TD + self.shared_experts(x_TD)

    def slots(self) -> Mapping[str, Slot]:
        if not self.routing.corrects:
            return {}
        bias = Slot(part_shapes=((self.routing.num_experts,),), fill=self._fill)
        return {"gate.e_score_correction_bias": bias}

    def _fill(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.e_score_correction_bias = parts[0].dense(torch.float32).to(target.device)
