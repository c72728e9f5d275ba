# SPDX-License-Identifier: Apache-2.0
"""The seam between layers and checkpoints: a layer names slots, the loader fills them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from tokenlight.kernels import PackQueue
from tokenlight.weights.stored import StoredTensor


class Target(NamedTuple):
    """Where a model runs, the dtype of its activations, and how it is being filled."""

    device: torch.device
    dtype: torch.dtype
    pack_queue: PackQueue | None = None
    """Where matrices wait to be packed while slots are filled; None: each is packed at once."""


Fill = Callable[[Sequence[StoredTensor], Target], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for one tensor, or for several that are fused by rows in the order of `part_shapes`.

    `fill` is called once with all parts. They lie in a mapped file and are gone once the model is
    filled, so what it keeps it copies. What it had packed has no numbers before that.
    """

    part_shapes: tuple[tuple[int, ...], ...]
    fill: Fill


@runtime_checkable
class HasSlots(Protocol):
    """A layer that has tensors of its own."""

    def slots(self) -> Mapping[str, Slot]:
        """By the last part of the tensor's name: `weight`, `bias`."""
