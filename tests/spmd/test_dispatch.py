# SPDX-License-Identifier: Apache-2.0
"""Experts on other ranks than the tokens: each token goes to its experts, and nowhere else."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.spmd.ranks import FakeWorld
from tests.spmd.test_models_on_ranks import PROMPTS, alone, run_all, save
from tokenlight.checkpoint import Checkpoint
from tokenlight.kernels import comm
from tokenlight.models import cache_specs, plan_model, shard_model
from tokenlight.spmd import Mesh, Widths
from tokenlight.spmd.dispatch import can_dispatch, dispatch_pays, routed_bytes, routed_ranks

SPREAD = Mesh.of(Widths(num_ranks=4, attn_tp=1, dense_tp=1, moe_tp=1))
WORLD = (0, 1, 2, 3)
T, D, A, EXPERTS_HERE = 5, 6, 3, 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return save("deepseek_v3", tmp_path_factory.mktemp("dispatch") / "model")


def routes(rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A rank's tokens, the experts of each, all different, and their weights."""
    rng = torch.Generator().manual_seed(rank)
    experts = torch.stack(
        [torch.randperm(4 * EXPERTS_HERE, generator=rng)[:A] for _ in range(T)]
    ).int()
    return torch.randn(T, D, generator=rng), experts, torch.rand(T, A, generator=rng)


def test_a_model_is_as_on_one_device_and_calls_what_is_planned(checkpoint: Checkpoint) -> None:
    world, _, logits = run_all(checkpoint, SPREAD)
    for rank, ours in enumerate(logits):
        assert float((ours - alone(checkpoint, PROMPTS[rank])).abs().max()) < 1e-4
    plan = plan_model(
        shard_model(checkpoint, SPREAD),
        cache_specs(checkpoint, SPREAD),
        dtype=torch.float32,
        kv_dtype=torch.float32,
    )
    # One of the two layers has experts; dense layers and the shared experts are each rank's own.
    assert plan.collectives == {"gather_routed": 1, "scatter_routed": 1}
    num_steps = 3
    for calls in world.calls:
        assert Counter((kind, group) for kind, group, _ in calls) == {
            ("gather_routed", WORLD): num_steps,
            ("scatter_routed", WORLD): num_steps,
        }


def test_where_sharing_a_layer_wants_all_tokens_they_are_gathered(checkpoint: Checkpoint) -> None:
    """The shared experts are split over all ranks: nothing is gained by routing."""
    mesh = Mesh.of(Widths(num_ranks=4, attn_tp=1, dense_tp=4, moe_tp=1))
    plan = plan_model(
        shard_model(checkpoint, mesh),
        cache_specs(checkpoint, mesh),
        dtype=torch.float32,
        kv_dtype=torch.float32,
    )
    assert plan.collectives == {"all_gather": 2, "reduce_scatter": 2}


@pytest.mark.parametrize(
    ("widths", "has_shared", "can"),
    [
        (Widths(num_ranks=4, attn_tp=1, dense_tp=1, moe_tp=1), True, True),
        (Widths(num_ranks=4, attn_tp=1, dense_tp=4, moe_tp=1), True, False),
        (Widths(num_ranks=4, attn_tp=1, dense_tp=4, moe_tp=1), False, True),
        (Widths(num_ranks=4, attn_tp=2, dense_tp=2, moe_tp=2), True, True),
        (Widths(num_ranks=4, attn_tp=2, dense_tp=2, moe_tp=1), True, False),
        (Widths(num_ranks=4, attn_tp=4, dense_tp=4, moe_tp=1), False, False),
        (Widths(), False, False),
    ],
)
def test_ranks_with_other_tokens_must_be_those_with_other_experts(
    widths: Widths, has_shared: bool, can: bool
) -> None:
    assert can_dispatch(Mesh.of(widths), has_shared=has_shared) is can


def test_it_is_chosen_where_it_sends_less() -> None:
    assert dispatch_pays(16, dim=7168, per_token=8)
    assert dispatch_pays(4, dim=64, per_token=2)
    # Nearly every rank has one of a token's experts, and the routes are sent as well.
    assert not dispatch_pays(2, dim=2048, per_token=12)
    assert not dispatch_pays(2, dim=64, per_token=2)
    assert not dispatch_pays(1, dim=4096, per_token=8)


def test_the_bytes_that_are_planned_are_those_of_routes_at_random() -> None:
    num_ranks, num_experts, num_tokens = 4, 16, 4000
    rng = torch.Generator().manual_seed(1)
    # Experts of a token are drawn one by one, as likely here as there.
    experts = torch.randint(0, num_ranks * num_experts, (num_tokens, A), generator=rng)
    wanted = comm.wanted_by(experts, num_ranks=num_ranks, num_experts=num_experts)
    sent_rows = int(wanted[:, 1:].sum())  # rank 0 keeps its own
    assert sent_rows / num_tokens == pytest.approx(routed_ranks(num_ranks, A), rel=0.02)
    x, y = torch.empty(num_tokens, D), torch.empty(num_ranks * num_tokens, D)
    row_bytes, route_bytes = 4 * D, 8 * A * (num_ranks - 1)
    assert routed_bytes(comm.gather_routed, x, experts, num_ranks) == pytest.approx(
        sent_rows * row_bytes + num_tokens * route_bytes, rel=0.02
    )
    assert routed_bytes(comm.scatter_routed, y, experts, num_ranks) == pytest.approx(
        sent_rows * row_bytes, rel=0.02
    )


def test_tokens_are_where_their_experts_are_and_zeros_elsewhere() -> None:
    world = FakeWorld(4)
    told = world.run(
        lambda r: world.rank(r).gather_routed(*routes(r), group=WORLD, num_experts=EXPERTS_HERE)
    )
    whole = [torch.cat([routes(rank)[i] for rank in WORLD]) for i in range(3)]
    for rank, (x, experts, weights) in enumerate(told):
        assert torch.equal(experts, whole[1])
        assert torch.equal(weights, whole[2])
        is_here = (experts // EXPERTS_HERE == rank).any(1)
        assert 0 < int(is_here.sum()) < 4 * T
        assert torch.equal(x[is_here], whole[0][is_here])
        assert not x[~is_here].any()


def test_sums_come_back_to_their_tokens() -> None:
    """As a reduce-scatter of what ranks with a token's experts have; others' rows are not read."""
    world = FakeWorld(4)
    experts = torch.cat([routes(rank)[1] for rank in WORLD])
    answers = [torch.randn(4 * T, D, generator=torch.Generator().manual_seed(r)) for r in WORLD]
    told = world.run(
        lambda r: world.rank(r).scatter_routed(
            answers[r], experts, group=WORLD, num_experts=EXPERTS_HERE
        )
    )
    wanted = comm.wanted_by(experts, num_ranks=4, num_experts=EXPERTS_HERE)
    want = sum(answers[rank] * wanted[:, rank, None] for rank in WORLD)
    torch.testing.assert_close(torch.cat(told), want)
