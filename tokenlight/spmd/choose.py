# SPDX-License-Identifier: Apache-2.0
"""Where a contract cannot take what it is given: which layouts its operands shall have instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from torch import Tensor

from tokenlight.kernels.contract import Op
from tokenlight.spmd.mesh import Mesh
from tokenlight.spmd.moves import cost_bytes, find_moves
from tokenlight.spmd.placement import REPLICATE, Layout
from tokenlight.spmd.rules import RULES

# Of a call; None for an operand that is no tensor.
Operands = tuple[Layout | None, ...]


def choose(
    op: Op[..., Any],
    here: Operands,
    values: Sequence[Tensor | None],
    is_fixed: Sequence[bool],
    mesh: Mesh,
    by_tokens: Layout,
) -> Operands | None:
    """The cheapest that the op takes, of what an operand has, what the step has, and replicated.

    Args:
        op: with rules.
        here: what its operands have.
        values: their shapes and dtypes.
        is_fixed: of weights, which are not moved.
        mesh: of the ranks.
        by_tokens: what the step brings has.

    Returns:
        None where no collective leads to anything that it takes.
    """
    best: tuple[float, Operands | None] = (float("inf"), None)
    for there in _candidates(op, here, values, by_tokens):
        if any(a != b for a, b, stays in zip(here, there, is_fixed, strict=True) if stays):
            continue
        cost = _cost_bytes(here, there, values, mesh)
        if cost is not None and cost < best[0]:
            best = (cost, there)
    return best[1]


def _candidates(
    op: Op[..., Any], here: Operands, values: Sequence[Tensor | None], by_tokens: Layout
) -> list[Operands]:
    """One row of the op's rules per axis, in every combination."""
    num_dims = 0 if values[0] is None else values[0].dim()
    num_axes = len(by_tokens)
    by_axis = []
    for axis in range(num_axes):
        present = {layout[axis] for layout in here if layout is not None}
        present |= {REPLICATE, by_tokens[axis]}
        able = [r.wanted(len(here)) for r in RULES[op] if r.num_dims in (0, num_dims)]
        by_axis.append([want for want in able if all(p is None or p in present for p in want)])
    return [
        tuple(
            None
            if layout is None
            else tuple(wanted[axis][i] or layout[axis] for axis in range(num_axes))
            for i, layout in enumerate(here)
        )
        for wanted in product(*by_axis)
    ]


def _cost_bytes(
    here: Operands, there: Operands, values: Sequence[Tensor | None], mesh: Mesh
) -> float | None:
    total = 0.0
    for start, end, value in zip(here, there, values, strict=True):
        if start is None or end is None or value is None or start == end:
            continue
        moves = find_moves(start, end)
        cost = None if moves is None else cost_bytes(value, moves, mesh)
        if cost is None:
            return None
        total += cost
    return total
