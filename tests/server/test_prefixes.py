# SPDX-License-Identifier: Apache-2.0
"""Recent prompts: bounded, each owner's own, compared token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.server.prefixes import Parting, RecentPrompts, turn_at, turn_spans
from tokenlight.text.conversation import Text, ToolCall, ToolResult, Turn

ME, YOU = b"me", b"you"


async def compared(kept: list[list[int]], ids: list[int]) -> Parting:
    """A token is a character here; the last five of a prompt open the answer."""
    recent = RecentPrompts()
    for earlier in kept:
        recent.note(ME, earlier, len(earlier) - 5)
    return await recent.compare(ME, ids)


@pytest.mark.parametrize(
    ("kept", "ids", "expected"),
    [
        ([], [1] * 50, ("first", 0)),
        ([[1] * 50], [2] * 50, ("first", 0)),
        ([[1] * 50], [1] * 50, ("repeats", 50)),
        ([[1] * 50], [1] * 50 + [2], ("extends", 50)),
        ([[1] * 50], [1] * 40 + [2] * 20, ("changed", 40)),
        ([[1] * 50], [1] * 47 + [2] * 20, ("extends", 47)),
        ([[1] * 50], [1] * 40, ("changed", 40)),
        ([[1] * 20 + [3], [1] * 50, [1] * 30 + [4]], [1] * 44 + [2], ("changed", 44)),
    ],
)
async def test_a_prompt_beside_the_closest_before_it(kept, ids, expected):
    parting = await compared(kept, ids)
    common = parting.num_common_tokens
    assert (parting.cause(common), common) == expected


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
async def test_the_common_part_is_the_longest(one, other):
    parting = await compared([one], other)
    common = parting.num_common_tokens
    assert one[:common] == other[:common]
    assert common == min(len(one), len(other)) or one[common] != other[common]


async def test_another_owners_prompts_are_not_there():
    recent = RecentPrompts()
    recent.note(YOU, [1] * 50, 45)
    assert (await recent.compare(ME, [1] * 50)).closest is None


async def test_the_oldest_give_way():
    recent = RecentPrompts(max_tokens=100)
    for token_id in range(5):
        recent.note(ME, [token_id] * 40, 35)
    assert (await recent.compare(ME, [2] * 40)).num_common_tokens == 0
    assert (await recent.compare(ME, [4] * 40)).num_common_tokens == 40
    recent.note(ME, [9] * 101, 96)  # what never fits drives none out
    assert (await recent.compare(ME, [4] * 40)).num_common_tokens == 40


def test_a_place_in_the_prompt_belongs_to_a_turn():
    turns = (
        Turn("system", (Text("rules"),)),
        Turn("user", (Text("same"),)),
        Turn("assistant", (ToolCall("c", "look", "{}"),)),
        Turn("tool", (ToolResult("c", "same", "look"),)),
        Turn("user", (Text(""),)),
    )
    text = "<tools> S:rules U:same A:look({}) T:same U: A:"
    places = {name: text.index(name) for name in ("tools", "rules", "U:same", "look", "T:same")}
    found = {name: turn_at(turn_spans(turns, text), place + 2) for name, place in places.items()}
    assert found == {"tools": -1, "rules": 0, "U:same": 1, "look": 2, "T:same": 3}
