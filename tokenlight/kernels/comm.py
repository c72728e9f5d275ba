# SPDX-License-Identifier: Apache-2.0
"""What ranks say to each other: contracts of the collectives, and the handle that carries them out.

Collectives are calls of a compiled program like any other; no model writes one. Each names its
group, so a handle needs no state but the way to reach the others. All ranks of a group call the
same collectives in the same order.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tokenlight.kernels.contract import Implementation, Op, op

# Ranks in the order in which they hold parts; the same on each of them.
Group = tuple[int, ...]

# Tokens of a whole group, their experts, the experts' weights.
Routed = tuple[Tensor, Tensor, Tensor]


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

    def gather_routed(
        self,
        x_TD: Tensor,
        experts_TA: Tensor,
        weights_TA: Tensor,
        *,
        group: Group,
        num_experts: int,
    ) -> Routed: ...

    def scatter_routed(
        self, y_UD: Tensor, experts_UA: Tensor, *, group: Group, num_experts: int
    ) -> Tensor: ...


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
def gather_routed(
    x_TD: Tensor, experts_TA: Tensor, weights_TA: Tensor, *, group: Group, num_experts: int
) -> Routed:
    """An all-gather of tokens and of their routes, where each rank has other experts.

    A token is sent to the ranks of its experts alone.

    Shapes: T tokens of this rank, D hidden, A chosen experts per token.

    Args:
        x_TD: this rank's tokens.
        experts_TA: int32, as `kernels.route` gives them.
        weights_TA: float32.
        group: rank i has the experts from i * num_experts on.
        num_experts: of each rank.

    Returns:
        Of all the group's tokens, in rank order: x, zeros where none of a token's experts is here;
        experts; weights.
    """
    raise NotImplementedError


@op
def scatter_routed(y_UD: Tensor, experts_UA: Tensor, *, group: Group, num_experts: int) -> Tensor:
    """This rank's tokens of a reduce-scatter, to which only ranks with a token's experts add.

    Shapes: U tokens of the whole group, D hidden, A chosen experts per token.

    Args:
        y_UD: what this rank's experts answer.
        experts_UA: as `gather_routed` gives them.
        group: as there.
        num_experts: as there.

    Returns:
        [T, D], added in rank order.
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
    gather_routed,
    scatter_routed,
    keep_part,
)


def wanted_by(experts_TA: Tensor, *, num_ranks: int, num_experts: int) -> Tensor:
    """Whether a token has an expert on each rank: bool [T, ranks]."""
    ranks = torch.arange(num_ranks, device=experts_TA.device)
    return (experts_TA[:, :, None] // num_experts == ranks).any(1)


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


@gather_routed.shape
def _routed(
    x_TD: Tensor, experts_TA: Tensor, weights_TA: Tensor, *, group: Group, num_experts: int
) -> Routed:
    x, experts, weights = (
        each.new_empty(_resized(each, 0, each.shape[0] * len(group)))
        for each in (x_TD, experts_TA, weights_TA)
    )
    return x, experts, weights


@scatter_routed.shape
def _spread(y_UD: Tensor, experts_UA: Tensor, *, group: Group, num_experts: int) -> Tensor:
    return y_UD.new_empty(_resized(y_UD, 0, y_UD.shape[0] // len(group)))


@keep_part.shape
def _part_of(x: Tensor, *, index: int, count: int, dim: int) -> Tensor:
    return x.chunk(count, dim)[index].contiguous()


def _resized(x: Tensor, dim: int, size: int) -> list[int]:
    return [size if i == dim else length for i, length in enumerate(x.shape)]
