# SPDX-License-Identifier: Apache-2.0
"""Python's literals against Python's own reader."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.text.parsing.forms.literal import LiteralReader, python_as_json
from tokenlight.text.parsing.source import Source

LITERAL = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=8,
)


@given(LITERAL)
def test_what_python_shows_is_read_as_python_reads_it(value) -> None:
    shown = python_as_json(repr(value))
    assert shown is not None
    assert json.loads(shown) == ast.literal_eval(repr(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        r"'\x41\u00e9\U0001F600\n\t\\\'\"'",
        '"""a "b" \'c\'\nd"""',
        "''",
        '""""""',
        "'''it''s'''",
        "(1, 2,)",
        "[[], {}, ()]",
        "0x1F",
        "1_000",
        "-0.5",
        "1e5",
        "{'a': {'b': [None]}}",
        "'a\\\nb'",
        r"r'\n\x\'\\'",
    ],
)
def test_agrees_with_python(text: str) -> None:
    shown = python_as_json(text)
    assert shown is not None
    expected = ast.literal_eval(text)
    got = json.loads(shown)
    assert got == (
        list(expected) if isinstance(expected, tuple) else json.loads(json.dumps(expected))
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[1",
        "{1}",
        "'a",
        "[,1]",
        "f(1)",
        "1 2",
        "inf",
        "{'a' 1}",
        "--",
        "[" * 1000,
        "'\\x4",
    ],
)
def test_what_is_no_literal_is_none(text: str) -> None:
    assert python_as_json(text) is None


def test_surrogates_stay_escapes() -> None:
    assert python_as_json(r"'\ud83d\ude00 \ud83d'") == '"\\ud83d\\ude00 \\ud83d"'


def test_quotes_of_a_models_own() -> None:
    src = Source()
    src.feed('{a:<|"|>x "y" \\n<|"|>,b:[true,-1.5,{}]}')
    src.is_ended = True
    pieces: list[str] = []
    reader = LiteralReader(src, pieces.append, ('<|"|>',), is_python=False)
    assert list(reader.value()) == []
    assert json.loads("".join(pieces)) == {"a": 'x "y" \\n', "b": [True, -1.5, {}]}
