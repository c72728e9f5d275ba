# SPDX-License-Identifier: Apache-2.0
"""The communicator over torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tokenlight.kernels.comm import Group, Routed, wanted_by

# torch 2.13 has another name for it, and warns of the old one.
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class TorchCommunicator:
    """Sums are added in rank order, whatever the number of rows: a row's bits do not depend on it.

    The process group of all ranks must be there. A smaller one is made by its members, when they
    first call a collective of it. Between GPUs calls are queued on the current stream, and may be
    captured in a graph once they were run: routed tokens are then sent to every rank, because who
    wants them would have to be read by the host.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._groups: dict[Group, dist.ProcessGroup] = {}
        self._is_cuda = device == "cuda"

    @property
    def name(self) -> str:
        return "nccl" if self._is_cuda else "gloo"

    @property
    def max_gathered_bytes(self) -> int:
        """One exchange in which each rank sends all it has to each other costs least.

        Between GPUs a second exchange costs as much as half a megabyte on its way.
        """
        return (512 if self._is_cuda else 64) * 1024

    def all_reduce(self, x: Tensor, *, group: Group) -> Tensor:
        if x.nbytes <= self.max_gathered_bytes or x.numel() % len(group):
            return _sum(self._gather(x, group))
        if self._is_cuda and len(group) == 2:  # two numbers have one order: NCCL may add them
            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=self._group(group))
            return total
        share = self.reduce_scatter(x.reshape(-1), group=group, dim=0)
        return self.all_gather(share, group=group, dim=0).view(x.shape)

    def all_gather(self, x: Tensor, *, group: Group, dim: int) -> Tensor:
        if self._is_cuda and dim == 0:
            return self._join(x, group)
        return torch.cat(self._gather(x, group), dim)

    def reduce_scatter(self, x: Tensor, *, group: Group, dim: int) -> Tensor:
        return _sum(self._exchange(x.chunk(len(group), dim), group))

    def all_to_all(self, x: Tensor, *, group: Group, split_dim: int, join_dim: int) -> Tensor:
        return torch.cat(self._exchange(x.chunk(len(group), split_dim), group), join_dim)

    def gather_shares(self, x_TD: Tensor, *, group: Group) -> Tensor:
        if self._is_cuda and len(x_TD) == 1:
            return self._join(x_TD, group).view(1, -1)
        return torch.cat(self._gather(x_TD, group), 1)

    def gather_routed(
        self,
        x_TD: Tensor,
        experts_TA: Tensor,
        weights_TA: Tensor,
        *,
        group: Group,
        num_experts: int,
    ) -> Routed:
        routes = torch.cat([experts_TA, weights_TA.view(torch.int32)], 1)
        experts, weights = torch.cat(self._gather(routes, group)).chunk(2, 1)
        experts = experts.contiguous()
        sends, holds = self._routes(experts, group, num_experts)
        if self._is_capturing():
            x_UD = _only(self._join(x_TD, group), holds)
        else:
            sent = torch.cat([x_TD[rows] for rows in sends])
            x_UD = x_TD.new_zeros(len(experts), x_TD.shape[1])
            x_UD[torch.cat(list(holds))] = self._exchange_rows(sent, sends, holds, group)
        return x_UD, experts, weights.contiguous().view(torch.float32)

    def scatter_routed(
        self, y_UD: Tensor, experts_UA: Tensor, *, group: Group, num_experts: int
    ) -> Tensor:
        wants, holds = self._routes(experts_UA, group, num_experts)
        if self._is_capturing():
            return self.reduce_scatter(_only(y_UD, holds), group=group, dim=0)
        sent = y_UD[torch.cat(list(holds))]
        received = self._exchange_rows(sent, holds, wants, group)
        y_TD = y_UD.new_zeros(len(y_UD) // len(group), y_UD.shape[1])
        shares = received.split([int(rows.sum()) for rows in wants])
        for rows, share in zip(wants, shares, strict=True):
            y_TD[rows] += share
        return y_TD

    def _routes(self, experts_UA: Tensor, group: Group, num_experts: int) -> tuple[Tensor, Tensor]:
        """Bool [ranks, T]: which of this rank's tokens each wants; which of each's this one."""
        num_ranks, mine = len(group), group.index(dist.get_rank())
        wanted = wanted_by(experts_UA, num_ranks=num_ranks, num_experts=num_experts)
        by_source = wanted.view(num_ranks, -1, num_ranks)
        return by_source[mine].T, by_source[:, :, mine]

    def _exchange_rows(self, sent: Tensor, out: Tensor, into: Tensor, group: Group) -> Tensor:
        """So many rows to each rank, and so many from each, as are true for it."""
        sizes, counts = into.sum(1).tolist(), out.sum(1).tolist()
        received = sent.new_empty(sum(sizes), sent.shape[1])
        dist.all_to_all_single(received, sent, sizes, counts, group=self._group(group))
        return received

    def _is_capturing(self) -> bool:
        """Whether what is called now will be repeated without the host."""
        return self._is_cuda and torch.cuda.is_current_stream_capturing()

    def _gather(self, x: Tensor, group: Group) -> list[Tensor]:
        """Everybody's `x`, in rank order."""
        if self._is_cuda:
            return list(self._join(x, group).view(len(group), *x.shape))
        mine = x.contiguous()
        parts = [torch.empty_like(mine) for _ in group]
        dist.all_gather(parts, mine, group=self._group(group))
        return parts

    def _join(self, x: Tensor, group: Group) -> Tensor:
        """Everybody's `x` along its first dimension, where NCCL writes it: nothing is copied."""
        joined = x.new_empty(len(group) * x.shape[0], *x.shape[1:])
        _all_gather(joined, x.contiguous(), group=self._group(group))
        return joined

    def _exchange(self, pieces: tuple[Tensor, ...], group: Group) -> list[Tensor]:
        """Piece i of everybody, on the i-th rank, in rank order."""
        sent = torch.stack(pieces)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self._group(group))
        return list(received)

    def _group(self, ranks: Group) -> dist.ProcessGroup:
        if ranks not in self._groups and ranks == tuple(range(dist.get_world_size())):
            everybody: Any = dist.group.WORLD  # of another group NCCL would connect them again
            self._groups[ranks] = everybody
        if ranks not in self._groups:
            make: Callable[..., dist.ProcessGroup] = dist.new_group
            self._groups[ranks] = make(list(ranks), use_local_synchronization=True)
        return self._groups[ranks]


def _only(x_UD: Tensor, is_held: Tensor) -> Tensor:
    """Zeros in the rows that are not: bool [ranks, T], their tokens one rank's after another's."""
    return x_UD.masked_fill(~is_held.reshape(-1, 1), 0.0)


def _sum(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0].clone()
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total
