# SPDX-License-Identifier: Apache-2.0
"""How a tensor gets from one layout to another, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tokenlight.kernels import comm
from tokenlight.kernels.contract import Op
from tokenlight.spmd.mesh import Axes, Mesh
from tokenlight.spmd.placement import (
    PARTIAL,
    REPLICATE,
    Layout,
    Partial,
    Placement,
    Replicate,
    Shard,
)

# What starting a collective costs, as bytes that could have been sent meanwhile: 10 us at 10 GB/s.
LATENCY_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Move:
    """One collective over some axes."""

    op: Op[..., Any]
    axes: Axes
    change: tuple[Placement, Placement]

    def applied_to(self, layout: Layout) -> Layout:
        return tuple(self.change[1] if a in self.axes else p for a, p in enumerate(layout))

    def options(self, mesh: Mesh) -> dict[str, Any]:
        """As the contract wants them."""
        group = mesh.ranks(self.axes)
        match self.change:
            case (Partial(), Replicate()):
                return {"group": group}
            case (Partial(), Shard(dim)) | (Shard(dim), Replicate()):
                return {"group": group, "dim": dim}
            case (Shard(join), Shard(split)):
                return {"group": group, "split_dim": split, "join_dim": join}
            case (_, Shard(dim)):
                return {"index": group.index(mesh.rank), "count": len(group), "dim": dim}
        raise AssertionError(self.change)


# The cheaper order: first what makes the tensor smaller, last what makes it larger.
_ORDER = (comm.reduce_scatter, comm.keep_part, comm.all_to_all, comm.all_reduce, comm.all_gather)


def find_moves(here: Layout, there: Layout) -> list[Move] | None:
    """None where no collectives do it: shares of a sum cannot be made."""
    if (moves := _direct_moves(here, there)) is not None:
        return moves
    for middle in _middles(here, there):
        first, second = _direct_moves(here, middle), _direct_moves(middle, there)
        if first is not None and second is not None:
            return first + second
    return None


def _middles(here: Layout, there: Layout) -> Iterator[Layout]:
    """Ways round where parts would come out of order: one axis after the other, or the whole.

    Of the whole as little as will do: what changes, what is inside of that, everything.
    """
    for axis in range(1, len(here)):
        yield there[:axis] + here[axis:]
        yield here[:axis] + there[axis:]
    pairs = list(zip(here, there, strict=True))
    first = next(axis for axis, (a, b) in enumerate(pairs) if a != b)
    for is_kept in (
        lambda axis: True,
        lambda axis: axis < first,
        lambda axis: False,
    ):
        yield tuple(
            a if a == b and (a == PARTIAL or is_kept(axis)) else REPLICATE
            for axis, (a, b) in enumerate(pairs)
        )


def _direct_moves(here: Layout, there: Layout) -> list[Move] | None:
    """One collective per kind of change: axes that change alike move together."""
    changed: dict[tuple[Placement, Placement], Axes] = {}
    for axis, change in enumerate(zip(here, there, strict=True)):
        if change[0] != change[1]:
            changed[change] = (*changed.get(change, ()), axis)
    moves = []
    for change, axes in changed.items():
        op = _collective(*change)
        if op is None or not _keeps_order(axes, change, here, there):
            return None
        moves.append(Move(op, axes, change))
    return sorted(moves, key=lambda move: _ORDER.index(move.op))


def cost_bytes(value: Tensor, moves: list[Move], mesh: Mesh) -> float | None:
    """What a rank sends, and the latencies as bytes. None where parts would not be equal."""
    shape, total = list(value.shape), 0.0
    for move in moves:
        count = mesh.size(move.axes)
        num_bytes = _num_bytes(shape, value)
        here, there = move.change
        if isinstance(there, Shard):
            if there.dim >= len(shape) or shape[there.dim] % count:
                return None
            shape[there.dim] //= count
        if isinstance(here, Shard):
            shape[here.dim] *= count
        total += sent_bytes(move.op, num_bytes, count)
        total += 0 if move.op is comm.keep_part else LATENCY_BYTES
    return total


def sent_bytes(op: Op[..., Any], num_bytes: float, count: int) -> float:
    """What each rank of `count` sends at least, of an operand of `num_bytes`."""
    share = num_bytes * (count - 1) / count
    match op:
        case comm.all_reduce:  # reduce-scatter, then all-gather
            return 2 * share
        case comm.all_gather:
            return num_bytes * (count - 1)
        case comm.keep_part:
            return 0
    return share


def _collective(here: Placement, there: Placement) -> Op[..., Any] | None:
    match here, there:
        case Partial(), Replicate():
            return comm.all_reduce
        case Partial(), Shard():
            return comm.reduce_scatter
        case Shard(), Replicate():
            return comm.all_gather
        case Shard(), Shard():
            return comm.all_to_all
        case Replicate(), Shard():
            return comm.keep_part
    return None


def _keeps_order(
    axes: Axes, change: tuple[Placement, Placement], here: Layout, there: Layout
) -> bool:
    """Whether parts of a dimension that two axes split stay in order, the outer axis' first.

    The outer one may not move beneath an inner one that stays.
    """
    for placement in change:
        if isinstance(placement, Shard):
            inner = range(min(axes) + 1, len(here))
            stay = [a for a in inner if a not in axes and placement in (here[a], there[a])]
            if stay:
                return False
    return True


def _num_bytes(shape: list[int], value: Tensor) -> int:
    total = value.element_size()
    for length in shape:
        total *= length
    return total
