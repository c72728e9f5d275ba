# SPDX-License-Identifier: Apache-2.0
"""Every way from one layout to another moves the numbers where they belong."""

from itertools import product

import pytest
import torch
from torch import Tensor

from tests.spmd.ranks import FakeWorld
from tokenlight.kernels import comm
from tokenlight.spmd import PARTIAL, REPLICATE, Layout, Mesh, Shard
from tokenlight.spmd.moves import cost_bytes, find_moves, sent_bytes

WHOLE = torch.arange(96.0).view(8, 12)
PLACEMENTS = (REPLICATE, PARTIAL, Shard(0), Shard(1))
MESHES = {"2": Mesh((2,)), "4": Mesh((4,)), "2x2": Mesh((2, 2))}


def held(mesh: Mesh, layout: Layout) -> Tensor:
    """What a rank has of `WHOLE`: shares of a sum are different on each rank."""
    x = WHOLE
    for axis, placement in enumerate(layout):
        index, size = mesh.coordinate(axis), mesh.sizes[axis]
        if isinstance(placement, Shard):
            x = x.chunk(size, placement.dim)[index]
        elif placement == PARTIAL:
            weights = torch.arange(1.0, size + 1)
            x = x * weights[index] / weights.sum()
    return x


def move(mesh: Mesh, here: Layout, there: Layout) -> list[Tensor]:
    world = FakeWorld(mesh.num_ranks)

    def of_rank(number: int) -> Tensor:
        seen, rank = mesh.at(number), world.rank(number)
        x = held(seen, here)
        for step in find_moves(here, there) or []:
            x = comm.carried_by(rank, step.op).run(x, **step.options(seen))
        return x

    return world.run(of_rank)


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_numbers_arrive(mesh: Mesh) -> None:
    layouts = list(product(PLACEMENTS, repeat=len(mesh.sizes)))
    ops = set()
    for here, there in product(layouts, layouts):
        moves = find_moves(here, there)
        if moves is None:
            assert PARTIAL in there
            continue
        ops |= {m.op for m in moves}
        for number, x in enumerate(move(mesh, here, there)):
            torch.testing.assert_close(x, held(mesh.at(number), there), msg=f"{here} {there}")
    of_one_pattern = {comm.gather_shares, comm.gather_routed, comm.scatter_routed}
    assert ops == {*comm.COLLECTIVES} - of_one_pattern


def test_what_cannot_be_done() -> None:
    assert find_moves((REPLICATE,), (PARTIAL,)) is None
    assert find_moves((Shard(0),), (PARTIAL,)) is None
    assert cost_bytes(torch.empty(3, 4), find_moves((REPLICATE,), (Shard(0),)), Mesh((2,))) is None


def test_what_would_come_out_of_order_goes_one_axis_after_the_other_or_by_the_whole() -> None:
    """An inner axis splits rows that an outer one would gather around it, or would split in it."""
    around = find_moves((Shard(0), Shard(0)), (REPLICATE, Shard(0)))
    assert [(m.op, m.axes) for m in around] == [(comm.all_gather, (0, 1)), (comm.keep_part, (1,))]
    beneath = find_moves((Shard(0), REPLICATE), (Shard(1), Shard(1)))
    assert [(m.op, m.axes) for m in beneath] == [(comm.all_to_all, (0,)), (comm.keep_part, (1,))]
    back = find_moves((Shard(1), Shard(1)), (Shard(0), REPLICATE))
    assert [(m.op, m.axes) for m in back] == [(comm.all_gather, (1,)), (comm.all_to_all, (0,))]


def test_axes_that_change_alike_move_together_and_small_tensors_first() -> None:
    together = find_moves((PARTIAL, PARTIAL), (REPLICATE, REPLICATE))
    assert [(m.op, m.axes) for m in together] == [(comm.all_reduce, (0, 1))]
    apart = find_moves((PARTIAL, PARTIAL), (Shard(0), REPLICATE))
    assert [m.op for m in apart] == [comm.reduce_scatter, comm.all_reduce]


@pytest.mark.parametrize(
    ("op", "num_bytes"),
    [
        (comm.all_reduce, 1500),
        (comm.reduce_scatter, 750),
        (comm.all_to_all, 750),
        (comm.all_gather, 3000),
        (comm.keep_part, 0),
    ],
)
def test_bytes_of_four_ranks_with_a_thousand_each(op: object, num_bytes: int) -> None:
    assert sent_bytes(op, 1000, 4) == num_bytes
