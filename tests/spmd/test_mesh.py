# SPDX-License-Identifier: Apache-2.0
import pytest

from tokenlight.base.errors import ConfigError
from tokenlight.spmd import Mesh, Widths

# Two that share attention, four that share a dense layer, all eight with their own experts.
EIGHT = Mesh.of(Widths(num_ranks=8, attn_tp=2, dense_tp=4, moe_tp=1))


def test_one_rank_has_no_axes() -> None:
    mesh = Mesh.of(Widths())
    assert mesh.sizes == ()
    assert mesh.num_ranks == 1
    assert {mesh.ranks(axes) for axes in mesh.roles.values()} == {(0,)}


def test_widths_are_runs_of_inner_axes() -> None:
    assert EIGHT.sizes == (2, 2, 2)
    seen = EIGHT.at(6)
    assert seen.ranks(seen.roles["attn_tp"]) == (6, 7)
    assert seen.ranks(seen.roles["dense_tp"]) == (4, 5, 6, 7)
    assert seen.ranks(seen.roles["dp"]) == (0, 2, 4, 6)
    assert seen.ranks(seen.roles["ep"]) == tuple(range(8))
    assert seen.ranks(seen.roles["moe_tp"]) == (6,)


@pytest.mark.parametrize("role", ["attn_tp", "dense_tp", "moe_tp", "dp", "ep", "all"])
def test_groups_of_a_role_part_the_ranks(role: str) -> None:
    groups = {EIGHT.at(rank).ranks(EIGHT.roles[role]) for rank in range(8)}
    assert sorted(rank for group in groups for rank in group) == list(range(8))
    for rank in range(8):
        seen = EIGHT.at(rank)
        assert seen.ranks(seen.roles[role])[seen.index(role)] == rank


def test_tensor_and_data_parallel_groups_cross_once() -> None:
    for rank in range(8):
        seen = EIGHT.at(rank)
        crossing = set(seen.ranks(seen.roles["attn_tp"])) & set(seen.ranks(seen.roles["dp"]))
        assert crossing == {rank}


def test_without_inner_axes_what_they_split_is_whole() -> None:
    assert [EIGHT.only(n).split("attn_tp", 8, "heads") for n in range(4)] == [8, 8, 8, 4]
    assert [EIGHT.only(n).split("ep", 8, "experts") for n in range(4)] == [8, 4, 2, 1]


def test_widths_that_do_not_divide_each_other() -> None:
    with pytest.raises(ConfigError, match="groups of 6 ranks cannot be split into groups of 4"):
        Mesh.of(Widths(num_ranks=6, attn_tp=4, dense_tp=6, moe_tp=6))


def test_what_cannot_be_shared_evenly() -> None:
    with pytest.raises(ConfigError, match=r"9 heads cannot be split evenly over 2 ranks \(attn_tp"):
        EIGHT.split("attn_tp", 9, "heads")
