# SPDX-License-Identifier: Apache-2.0
"""Buffers that are alive together never overlap, and the arena is no larger than it must."""

from hypothesis import given
from hypothesis import strategies as st

from tokenlight.spmd.memory import ALIGNMENT_BYTES, Span, plan_memory

spans = st.lists(
    st.builds(
        lambda size, first, length: Span(size, first, first + length),
        st.integers(1, 1000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=30,
)


@given(spans)
def test_what_lives_together_lies_apart(given_spans: list[Span]) -> None:
    arena = plan_memory(given_spans)
    placed = list(zip(arena.offsets, given_spans, strict=True))
    for i, (a, left) in enumerate(placed):
        assert a % ALIGNMENT_BYTES == 0
        assert a + left.num_bytes <= arena.num_bytes
        for b, right in placed[:i]:
            if left.first <= right.last and right.first <= left.last:
                assert a + left.num_bytes <= b or b + right.num_bytes <= a


def test_a_chain_needs_two_places() -> None:
    chain = [Span(640, i, i + 1) for i in range(10)]
    assert plan_memory(chain).num_bytes == 2 * 640


def test_a_small_one_fills_a_gap() -> None:
    arena = plan_memory([Span(640, 0, 5), Span(640, 0, 1), Span(64, 2, 5), Span(640, 2, 2)])
    assert arena.num_bytes == 2 * 640 + 64
