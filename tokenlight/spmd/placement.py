# SPDX-License-Identifier: Apache-2.0
"""What a rank holds of a tensor, and what a module says of its inputs and its result.

    @placed("dense_tp", x_TD=REPLICATE, returns=PARTIAL)
    def forward(self, x_TD: Tensor) -> Tensor: ...

says: in the group `dense_tp` all ranks give the same x_TD, and each returns its share of a sum.
Outside its group a module works on whatever tokens it is given. One that says nothing of its result
is a place where modules meet: its inputs are brought, and what is inside is held to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank holds the same."""

    def __str__(self) -> str:
        return "Replicate"


@dataclass(frozen=True, slots=True)
class Partial:
    """The sum over the ranks is the tensor."""

    def __str__(self) -> str:
        return "Partial"


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank holds its own part of a dimension, in rank order."""

    dim: int

    def __str__(self) -> str:
        return f"Shard({self.dim})"


Placement = Replicate | Partial | Shard
REPLICATE, PARTIAL = Replicate(), Partial()

# One placement per axis of the mesh.
Layout = tuple[Placement, ...]


class Declared(NamedTuple):
    """What `placed` was told; `inputs` by parameter name."""

    role: str
    inputs: dict[str, Placement]
    returns: Placement | None


class PlacementError(TypeError):
    """A module says of itself what its code does not do."""


def placed(role: str, *, returns: Placement | None = None, **inputs: Placement) -> Callable[[F], F]:
    """Declare a module's boundary, on its `forward`.

    Args:
        role: the group that the module is split over.
        returns: what its result is in this group; None: not said.
        inputs: what it wants of its tensors there; others come as they are.
    """

    def declare(forward: F) -> F:
        forward.declared = Declared(role, inputs, returns)  # type: ignore[attr-defined]
        return forward

    return declare


def declared(module: Any) -> Declared | None:
    """What the module's `forward` was declared to be."""
    return getattr(type(module).forward, "declared", None)


def shown(layout: Layout) -> str:
    return "[" + ", ".join(map(str, layout)) + "]"
