# SPDX-License-Identifier: Apache-2.0
"""Several ranks in one process: a thread each, which meet at every collective."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Lock
from typing import TypeVar

import torch
from torch import Tensor

from tokenlight.kernels.comm import Group, Routed, wanted_by

T = TypeVar("T")


class FakeWorld:
    """What all ranks share: a place to put tensors, and a barrier per group."""

    def __init__(self, num_ranks: int, max_gathered_bytes: int = 1024) -> None:
        self.num_ranks = num_ranks
        self.max_gathered_bytes = max_gathered_bytes
        self.calls: list[list[tuple[str, Group, int]]] = [[] for _ in range(num_ranks)]
        """Of the last run, by rank: kind, group, bytes of the operand."""
        self.skipped: int | None = None
        """The number of a call for which a rank hears itself alone."""
        self._lock = Lock()
        self._barriers: dict[Group, Barrier] = {}
        self._posted: dict[int, tuple[str, Tensor]] = {}

    def rank(self, number: int) -> FakeRank:
        return FakeRank(self, number)

    def run(self, of_rank: Callable[[int], T]) -> list[T]:
        """Run every rank's part at once; a rank that fails stops those that wait for it."""
        self.calls = [[] for _ in range(self.num_ranks)]
        with ThreadPoolExecutor(self.num_ranks) as pool:
            futures = [pool.submit(self._guarded, of_rank, r) for r in range(self.num_ranks)]
        errors = [f.exception() for f in futures]
        for error in errors:
            if error is not None and not isinstance(error, BrokenBarrierError):
                raise error
        return [f.result() for f in futures]

    def _guarded(self, of_rank: Callable[[int], T], rank: int) -> T:
        try:
            with torch.inference_mode():
                return of_rank(rank)
        except BaseException:
            with self._lock:
                for barrier in self._barriers.values():
                    barrier.abort()
            raise

    def exchange(self, rank: int, kind: str, x: Tensor, group: Group) -> list[Tensor]:
        """What each rank of the group posted, in its order."""
        self.calls[rank].append((kind, group, x.nbytes))
        assert rank in group
        if len(self.calls[rank]) - 1 == self.skipped:
            return [x] * len(group) if kind in ("all_gather", "all_to_all") else [x]
        with self._lock:
            barrier = self._barriers.setdefault(group, Barrier(len(group), timeout=60))
            self._posted[rank] = (kind, x.clone())
        barrier.wait()
        posted = [self._posted[r] for r in group]
        barrier.wait()
        assert {k for k, _ in posted} == {kind}, "ranks call different collectives"
        return [tensor for _, tensor in posted]


class FakeRank:
    """A rank's `Communicator`."""

    name = "fake"

    def __init__(self, world: FakeWorld, rank: int) -> None:
        self.world, self.rank = world, rank

    @property
    def max_gathered_bytes(self) -> int:
        return self.world.max_gathered_bytes

    def all_reduce(self, x: Tensor, *, group: Group) -> Tensor:
        return torch.stack(self._exchange("all_reduce", x, group)).sum(0)

    def all_gather(self, x: Tensor, *, group: Group, dim: int) -> Tensor:
        return torch.cat(self._exchange("all_gather", x, group), dim)

    def reduce_scatter(self, x: Tensor, *, group: Group, dim: int) -> Tensor:
        total = torch.stack(self._exchange("reduce_scatter", x, group)).sum(0)
        return total.chunk(len(group), dim)[group.index(self.rank)].contiguous()

    def all_to_all(self, x: Tensor, *, group: Group, split_dim: int, join_dim: int) -> Tensor:
        mine = group.index(self.rank)
        sent = self._exchange("all_to_all", x, group)
        return torch.cat([each.chunk(len(group), split_dim)[mine] for each in sent], join_dim)

    def gather_shares(self, x_TD: Tensor, *, group: Group) -> Tensor:
        """An all-reduce to those who count; a rank that hears itself alone hears no other share."""
        heard = self._exchange("all_reduce", x_TD, group)
        silence = [torch.zeros_like(x_TD)] * (len(group) - len(heard))
        return torch.cat([*heard, *silence], 1)

    def gather_routed(
        self,
        x_TD: Tensor,
        experts_TA: Tensor,
        weights_TA: Tensor,
        *,
        group: Group,
        num_experts: int,
    ) -> Routed:
        """Everything is posted; what a rank may not have is forgotten."""
        columns = torch.cat([x_TD, experts_TA.view(torch.float32), weights_TA], 1)
        heard = torch.cat(self._exchange("gather_routed", columns, group))
        x, experts, weights = heard.split([x_TD.shape[1], *[experts_TA.shape[1]] * 2], 1)
        experts = experts.contiguous().view(torch.int32)
        wanted = wanted_by(experts, num_ranks=len(group), num_experts=num_experts)
        return x * wanted[:, group.index(self.rank), None], experts, weights.contiguous()

    def scatter_routed(
        self, y_UD: Tensor, experts_UA: Tensor, *, group: Group, num_experts: int
    ) -> Tensor:
        parts = torch.stack(self._exchange("scatter_routed", y_UD, group))
        wanted = wanted_by(experts_UA, num_ranks=len(group), num_experts=num_experts)
        total = (parts * wanted.T[:, :, None]).sum(0)
        return total.chunk(len(group))[group.index(self.rank)].contiguous()

    def _exchange(self, kind: str, x: Tensor, group: Group) -> list[Tensor]:
        return self.world.exchange(self.rank, kind, x, group)
