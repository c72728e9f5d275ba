# SPDX-License-Identifier: Apache-2.0
"""Logits of all groups' rows, on the leading rank: it samples for all.

The first rank of each other group sends its group's; groups without rows send nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor


def collect(logits_SV: Tensor, num_rows: Sequence[int], first_ranks: Sequence[int]) -> Tensor:
    """On the leading rank: every group's rows, in the groups' order.

    Args:
        logits_SV: of this rank's group, which is the first.
        num_rows: of each group.
        first_ranks: of each group.
    """
    if len(num_rows) == 1:
        return logits_SV
    all_SV = logits_SV.new_empty(sum(num_rows), logits_SV.shape[1])
    own, *others = all_SV.split(list(num_rows))
    own.copy_(logits_SV)
    for part_SV, rank in zip(others, first_ranks[1:], strict=True):
        if len(part_SV):
            dist.recv(part_SV, src=rank)
    return all_SV


def keep(logits_SV: Tensor, num_rows: Sequence[int]) -> Tensor:
    """On the other ranks, as `collect` is called: the first of a group has the same."""
    return logits_SV


def hand_over(logits_SV: Tensor, num_rows: Sequence[int]) -> Tensor:
    """On the first rank of another group, as `collect` is called."""
    give(logits_SV)
    return logits_SV


def give(logits_SV: Tensor) -> None:
    """On the first rank of another group."""
    if len(logits_SV):
        dist.send(logits_SV.contiguous(), dst=0)
