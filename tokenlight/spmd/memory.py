# SPDX-License-Identifier: Apache-2.0
"""Where each buffer of a program lies: an arena in which what is not alive together overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT_BYTES = 64


class Span(NamedTuple):
    """A buffer's bytes, and the instructions from the one that makes it to the last that reads."""

    num_bytes: int
    first: int
    last: int


class Arena(NamedTuple):
    offsets: tuple[int, ...]
    """Bytes, in the order of the spans."""
    num_bytes: int


def plan_memory(spans: Sequence[Span]) -> Arena:
    """Largest first, each at the lowest place that nothing alive with it has taken."""
    placed: list[tuple[int, int, Span]] = []
    offsets = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda i: -spans[i].num_bytes):
        span = spans[index]
        size = -(-span.num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        neighbours = sorted(
            (start, end)
            for start, end, other in placed
            if other.first <= span.last and span.first <= other.last
        )
        offset = 0
        for start, end in neighbours:
            if offset + size <= start:
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append((offset, offset + size, span))
    return Arena(tuple(offsets), max((end for _, end, _ in placed), default=0))
