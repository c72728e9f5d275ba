# SPDX-License-Identifier: Apache-2.0
"""Stop strings do not depend on how the text is cut, and deliver all that cannot become one."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenlight.text import StopStrings


def expected(text, stops):
    """By definition: the stop that is complete first; of two at once, the longer."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def run(pieces, stops):
    stream = StopStrings(stops)
    delivered, matched = "", None
    for piece in pieces:
        text, matched = stream.push(piece)
        delivered += text
    if matched is None:
        delivered += stream.flush()
    return delivered, matched


letters = st.text(alphabet="ab\n", max_size=30)


@settings(deadline=None, max_examples=500)
@given(
    pieces=st.lists(letters, max_size=12),
    stops=st.lists(st.text(alphabet="ab\n", min_size=0, max_size=5), max_size=4),
)
def test_any_split_is_the_definition(pieces, stops):
    assert run(pieces, stops) == expected("".join(pieces), stops)
    assert run(list("".join(pieces)), stops) == expected("".join(pieces), stops)


@settings(deadline=None, max_examples=500)
@given(text=letters, stops=st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4))
def test_no_more_is_held_back_than_may_become_a_stop(text, stops):
    stream = StopStrings(stops)
    delivered = ""
    for end, character in enumerate(text, start=1):
        piece, matched = stream.push(character)
        delivered += piece
        if matched is not None:
            return
        held = text[len(delivered) : end]
        assert text[:end] == delivered + held
        assert not held or any(stop.startswith(held) for stop in stops)
        # What follows the held text's first character could start none earlier.
        longer = text[len(delivered) - 1 : end]
        assert not delivered or not any(stop.startswith(longer) for stop in stops)


@pytest.mark.parametrize(
    ("text", "stops", "delivered", "matched"),
    [
        ("Hello\nUser: hi", ["\nUser:"], "Hello", "\nUser:"),
        ("abcd", ["abcd", "bc"], "a", "bc"),
        ("xab", ["b", "ab"], "x", "ab"),
        ("aab", ["ab"], "a", "ab"),
        ("日本語です。", ["。"], "日本語です", "。"),
        ("nothing", ["zzz"], "nothing", None),
        ("a.b", ["."], "a", "."),
        ("text", [], "text", None),
        ("text", [""], "text", None),
    ],
)
def test_examples(text, stops, delivered, matched):
    assert run([text], stops) == (delivered, matched)


def test_nothing_is_delivered_after_a_match():
    stream = StopStrings(["stop"])
    assert stream.push("go stop on") == ("go ", "stop")
    assert stream.push("and on") == ("", "stop")
    assert stream.flush() == ""


def test_cost_does_not_grow_with_the_stops():
    hostile = ["a" * 2000 + "b", *("a" * n + "c" for n in range(1, 200))]
    stream = StopStrings(hostile)
    start_s = time.process_time()
    for _ in range(20_000):
        stream.push("aaaaa")
    # Looking at the held text again for each push would take minutes.
    assert time.process_time() - start_s < 10
