# SPDX-License-Identifier: Apache-2.0
"""What ranks say to each other: contracts of the collectives, and the handle that carries them out.

Collectives are calls of a compiled program like any other; no model writes one. Each names its
group, so a handle needs no state but the way to reach the others. All ranks of a group call the
same collectives in the same order.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from tokenlight.kernels.contract import Implementation, Op, op

# Ranks in the order in which they hold parts; the same on each of them.
Group = tuple[int, ...]


class Communicator(Protocol):
    """A rank's handle. Its methods are the contracts below, and keep what these promise."""

    @property
    def name(self) -> str:
        """How calls reach the others: "gloo", "nccl", ..."""

    @property
    def max_gathered_bytes(self) -> int:
        """Up to here the operand of a sum is better gathered, and added by its reader; 0: never."""

    def all_reduce(self, x: Tensor, *, group: Group) -> Tensor: ...

    def all_gather(self, x: Tensor, *, group: Group, dim: int) -> Tensor: ...

    def reduce_scatter(self, x: Tensor, *, group: Group, dim: int) -> Tensor: ...

    def all_to_all(self, x: Tensor, *, group: Group, split_dim: int, join_dim: int) -> Tensor: ...

    def gather_shares(self, x_TD: Tensor, *, group: Group) -> Tensor: ...


@op
def all_reduce(x: Tensor, *, group: Group) -> Tensor:
    """The sum over the group, on every rank; added in rank order, so the same bits everywhere."""
    raise NotImplementedError


@op
def all_gather(x: Tensor, *, group: Group, dim: int) -> Tensor:
    """The ranks' parts of dimension `dim`, joined in the group's order."""
    raise NotImplementedError


@op
def reduce_scatter(x: Tensor, *, group: Group, dim: int) -> Tensor:
    """This rank's part, along `dim`, of the sum over the group."""
    raise NotImplementedError


@op
def all_to_all(x: Tensor, *, group: Group, split_dim: int, join_dim: int) -> Tensor:
    """From parts of `join_dim` to parts of `split_dim`: each rank sends each other a piece."""
    raise NotImplementedError


@op
def gather_shares(x_TD: Tensor, *, group: Group) -> Tensor:
    """An all-reduce but for its sum, which the reader adds with what it does anyway.

    Returns:
        [T, G * D]: of each token every rank's share, in rank order.
    """
    raise NotImplementedError


@op
def keep_part(x: Tensor, *, index: int, count: int, dim: int) -> Tensor:
    """Part `index` of `count` along `dim`, contiguous; nothing is sent."""
    raise NotImplementedError


COLLECTIVES: tuple[Op[..., Any], ...] = (
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather_shares,
    keep_part,
)


def carried_by(comm: Communicator, collective: Op[..., Any]) -> Implementation[..., Any]:
    """The collective through this handle."""
    run = _part_of if collective is keep_part else getattr(comm, collective.name)
    return Implementation(
        backend=comm.name,
        run=run,
        device="any",
        needs=frozenset(),
        dtypes=None,
        stored=None,
        formats=None,
        rank=0,
    )


@all_reduce.shape
def _same(x: Tensor, *, group: Group) -> Tensor:
    return x.new_empty(x.shape)


@all_gather.shape
def _joined(x: Tensor, *, group: Group, dim: int) -> Tensor:
    return x.new_empty(_resized(x, dim, x.shape[dim] * len(group)))


@reduce_scatter.shape
def _scattered(x: Tensor, *, group: Group, dim: int) -> Tensor:
    return x.new_empty(_resized(x, dim, x.shape[dim] // len(group)))


@all_to_all.shape
def _exchanged(x: Tensor, *, group: Group, split_dim: int, join_dim: int) -> Tensor:
    joined = x.new_empty(_resized(x, join_dim, x.shape[join_dim] * len(group)))
    return joined.new_empty(_resized(joined, split_dim, x.shape[split_dim] // len(group)))


@gather_shares.shape
def _shares(x_TD: Tensor, *, group: Group) -> Tensor:
    return x_TD.new_empty(_resized(x_TD, 1, x_TD.shape[1] * len(group)))


@keep_part.shape
def _part_of(x: Tensor, *, index: int, count: int, dim: int) -> Tensor:
    return x.chunk(count, dim)[index].contiguous()


def _resized(x: Tensor, dim: int, size: int) -> list[int]:
    return [size if i == dim else length for i, length in enumerate(x.shape)]
