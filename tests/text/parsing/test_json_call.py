# SPDX-License-Identifier: Apache-2.0
"""JSON passed through and JSON strings decoded, against the standard library's reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.text.parsing.forms.json_call import read_container, read_string
from tokenlight.text.parsing.source import Pull, Source, Unfinished

ANY = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def read(reader, pieces: list[str]) -> tuple[str, str]:
    """What a reader wrote of the pieces, and what it left."""
    src = Source()
    written: list[str] = []
    rest = iter(pieces)
    src.feed(next(rest))
    running: Pull[None] = reader(src, written.append)
    while True:
        try:
            next(running)
        except StopIteration:
            return "".join(written), src.text[src.at :] + "".join(rest)
        if (piece := next(rest, None)) is None:
            src.is_ended = True
        else:
            src.feed(piece)


@given(st.lists(ANY) | st.dictionaries(st.text(), ANY), st.booleans(), st.integers(1, 9))
def test_a_container_passes_byte_for_byte(value, ensure_ascii: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    assert read(read_container, [*pieces, ", more"]) == (text, ", more")


@given(st.text(), st.booleans(), st.integers(1, 9))
def test_a_string_is_decoded(value: str, ensure_ascii: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    written, left = read(read_string, [*pieces, " and more of it"])
    assert written == "".join(
        "\ufffd" if "\ud800" <= c <= "\udfff" else c for c in json.loads(text)
    )
    assert left == " and more of it"


@pytest.mark.parametrize("text", ['{"a": 1', '["a', '{"a": "\\', "[[]"])
def test_an_unfinished_container_says_so(text: str) -> None:
    with pytest.raises(Unfinished):
        read(read_container, list(text))


def test_raw_control_characters_in_strings_are_escaped() -> None:
    text = '{"a":\n"x\ny\tz\x00"}'
    written, _ = read(read_container, list(text))
    assert written == '{"a":\n"x\\ny\\tz\\u0000"}'
    assert json.loads(written) == json.loads(text, strict=False)


def test_lone_escapes_are_kept() -> None:
    assert read(read_string, list('"a\\qb\\u12"'))[0] == "a\\qb\\u12"
