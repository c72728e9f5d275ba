# SPDX-License-Identifier: Apache-2.0
"""Collectives are as few, and as late, as they can be."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.spmd.test_random_graphs import DIM, F32, Columns, Rows, Whole, gated
from tokenlight.kernels.contract import Op
from tokenlight.nn import TensorModule
from tokenlight.spmd import (
    PROBE_ROWS,
    Mesh,
    Ranks,
    Widths,
    build_chain,
    placed_graph,
    weight_layouts,
)
from tokenlight.weights import fill_without_numbers

TP2 = Mesh.of(Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2))
DP2 = Mesh.of(Widths(num_ranks=4, attn_tp=2, dense_tp=4, moe_tp=4))


def ops(kind: type[nn.Module], mesh: Mesh = TP2) -> list[str]:
    chain = build_chain(kind, mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    graph = placed_graph(chain[-1], "forward", probe, Ranks(mesh, weight_layouts(chain)))
    return [n.target.name for n in graph.nodes if isinstance(n.target, Op)]


class Pair(TensorModule):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.left, self.right, self.whole = gated(mesh), gated(mesh), Whole(mesh)

    def forward(self, step: SimpleNamespace) -> Tensor:
        return self.whole(self.left(step.x_TD) + self.right(step.x_TD))


def test_sums_that_are_added_are_summed_over_ranks_once() -> None:
    names = ops(Pair)
    assert names.count("all_reduce") == 1
    assert names.index("all_reduce") == names.index("add") + 1


class Reused(Pair):
    def forward(self, step: SimpleNamespace) -> Tensor:
        y_TD = self.left(step.x_TD)
        return self.whole(y_TD) + self.whole(y_TD) + y_TD


def test_a_sum_that_several_read_is_summed_once() -> None:
    assert ops(Reused).count("all_reduce") == 1


class Matched(TensorModule):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.columns, self.rows = Columns(mesh), Rows(mesh)

    def forward(self, step: SimpleNamespace) -> Tensor:
        return self.rows(self.columns(step.x_TD) * 2.0)


def test_what_fits_is_handed_on_as_it_is() -> None:
    assert ops(Matched) == ["linear", "scale", "linear", "all_reduce"]


class Widened(Matched):
    def forward(self, step: SimpleNamespace) -> Tensor:
        return self.columns(step.x_TD).float()


def test_parts_are_joined_before_they_are_widened() -> None:
    assert ops(Widened) == ["linear", "all_gather", "to_float32"]


class Residual(TensorModule):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mlp = gated(mesh)

    def forward(self, step: SimpleNamespace) -> Tensor:
        return step.x_TD + self.mlp(step.x_TD)


def test_a_branch_comes_to_the_tokens_of_the_stream_it_joins() -> None:
    """The sum is scattered before it is summed over the rest: the smaller tensor is sent twice."""
    names = [name for name in ops(Residual, DP2) if name not in ("linear", "silu_mul")]
    assert names == ["all_gather", "reduce_scatter", "all_reduce", "add"]


def test_one_rank_is_left_as_it_was_traced() -> None:
    assert ops(Residual, Mesh()) == ["linear", "silu_mul", "linear", "add"]
