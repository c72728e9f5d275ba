# SPDX-License-Identifier: Apache-2.0
"""How many rows tensors have: what differs from step to step, while all other sizes are fixed.

Shapes are inferred with row counts that nothing else has, so that a first dimension tells what it
counts: a step's tokens, its sampled rows, or a multiple of one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

# Primes: a multiple of one is no multiple of the other.
PROBE_ROWS = {"T": 1009, "S": 1013}


class Limits(NamedTuple):
    """The most rows that a program is run with: tokens, and sampled rows."""

    T: int
    S: int


class Rows(NamedTuple):
    """A multiple of the step's tokens, or of its sampled rows."""

    of: Literal["T", "S"]
    times: int = 1

    def most(self, limits: Limits) -> int:
        return self.times * (limits.T if self.of == "T" else limits.S)


def rows_of(value: Tensor) -> Rows:
    """Which count the first dimension of an inferred tensor stands for."""
    tokens, sampled = (value.shape[0] / probe for probe in PROBE_ROWS.values())
    if tokens >= 1 and tokens.is_integer():
        return Rows("T", int(tokens))
    if sampled >= 1 and sampled.is_integer():
        return Rows("S", int(sampled))
    raise ValueError(f"the first dimension of {list(value.shape)} is no row count of a step")
