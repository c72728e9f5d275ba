# SPDX-License-Identifier: Apache-2.0
"""The ranks of one model as a grid, and the groups in which each kind of layer is split."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

from tokenlight.base.errors import ConfigError

# Numbers of the mesh's axes, outermost first.
Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Over how many ranks each kind of layer is split."""

    num_ranks: int = 1
    attn_tp: int = 1
    """Ranks that share the heads of attention; the other ranks have other tokens."""
    dense_tp: int = 1
    """Ranks that share a dense feed-forward layer."""
    moe_tp: int = 1
    """Ranks that share an expert; the other ranks have other experts."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of ranks, the last axis the fastest.

    A role is a kind of group: `attn_tp`, `dense_tp` and `moe_tp` are neighbours that share layers,
    `dp` are ranks with different tokens in attention, `ep` ranks with different experts, `all` is
    every rank.
    """

    sizes: tuple[int, ...] = ()
    roles: dict[str, Axes] = field(
        default_factory=lambda: dict.fromkeys(
            ("attn_tp", "dense_tp", "moe_tp", "dp", "ep", "all"), ()
        )
    )
    rank: int = 0

    @classmethod
    def of(cls, widths: Widths) -> Mesh:
        """The coarsest grid in which every width is some innermost axes.

        Raises:
            ConfigError: a width does not divide the next larger one.
        """
        chain = sorted({1, widths.attn_tp, widths.dense_tp, widths.moe_tp, widths.num_ranks})
        for inner, outer in pairwise(chain):
            if outer % inner:
                raise ConfigError(
                    f"groups of {outer} ranks cannot be split into groups of {inner}; choose sizes "
                    f"that divide each other"
                )
        num_axes = len(chain) - 1

        def inside(width: int) -> Axes:
            return tuple(range(num_axes - chain.index(width), num_axes))

        def outside(width: int) -> Axes:
            return tuple(range(num_axes - chain.index(width)))

        roles = {
            "attn_tp": inside(widths.attn_tp),
            "dense_tp": inside(widths.dense_tp),
            "moe_tp": inside(widths.moe_tp),
            "dp": outside(widths.attn_tp),
            "ep": outside(widths.moe_tp),
            "all": inside(widths.num_ranks),
        }
        return cls(tuple(outer // inner for inner, outer in pairwise(chain))[::-1], roles)

    def at(self, rank: int) -> Mesh:
        """The same grid, seen by another rank."""
        return replace(self, rank=rank)

    def only(self, num_axes: int) -> Mesh:
        """The grid with its outermost axes alone: what the inner ones split is whole again."""
        rest = (1,) * (len(self.sizes) - num_axes)
        return Mesh(self.sizes[:num_axes] + rest, self.roles)

    @property
    def num_ranks(self) -> int:
        return prod(self.sizes)

    def size(self, axes: Axes) -> int:
        return prod(self.sizes[axis] for axis in axes)

    def coordinate(self, axis: int) -> int:
        return self.rank // self._stride(axis) % self.sizes[axis]

    def ranks(self, axes: Axes) -> tuple[int, ...]:
        """This rank's group along `axes`, in the order of the parts that its ranks hold."""
        ranks = [self.rank - sum(self.coordinate(axis) * self._stride(axis) for axis in axes)]
        for axis in axes:
            steps = range(0, self.sizes[axis] * self._stride(axis), self._stride(axis))
            ranks = [rank + step for rank in ranks for step in steps]
        return tuple(ranks)

    def index(self, role: str) -> int:
        """This rank's place in its group."""
        return self.ranks(self.roles[role]).index(self.rank)

    def split(self, role: str, count: int, what: str) -> int:
        """How many of `count` things each rank of a group holds.

        Raises:
            ConfigError: they cannot be shared out evenly.
        """
        size = self.size(self.roles[role])
        if count % size:
            raise ConfigError(f"{count} {what} cannot be split evenly over {size} ranks ({role})")
        return count // size

    def _stride(self, axis: int) -> int:
        return prod(self.sizes[axis + 1 :])
