# SPDX-License-Identifier: Apache-2.0
"""Bare text typed by JSON Schemas."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.text.parsing.forms.schema import ANY, as_json, is_text, parameter_types, types_of

ROOT = {
    "$defs": {
        "name": {"type": "string"},
        "a/b": {"type": "integer"},
        "loop": {"$ref": "#/$defs/loop"},
    }
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"oneOf": [{"type": "string"}, {}]}, set()),
        ({"allOf": [{"title": "x"}, {"type": "number"}]}, {"number"}),
        ({"$ref": "#/$defs/name"}, {"string"}),
        ({"$ref": "#/$defs/a~1b"}, {"integer"}),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "other.json"}, set()),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({}, set()),
        (True, set()),
        (None, set()),
        ({"type": [3, {}]}, set()),
        ({"anyOf": 3}, set()),
    ],
)
def test_types(schema, types) -> None:
    assert types_of(schema, ROOT) == types


def test_parameters() -> None:
    schema = {"properties": {"a": {"type": "string"}}}
    assert parameter_types(schema, "a") == {"string"}
    assert parameter_types(schema, "b") == ANY
    assert parameter_types({"properties": 3}, "a") == ANY


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"string"}, "5"),
        ("5", {"integer"}, 5),
        (" 5 ", {"integer"}, 5),
        ("05", {"integer"}, "05"),
        ("+5", {"integer"}, 5),
        ("five", {"integer"}, "five"),
        ("1e3", {"number"}, 1000.0),
        ("nan", {"number"}, "nan"),
        ("TRUE", {"boolean"}, True),
        ("yes", {"boolean"}, "yes"),
        ("None", {"string", "null"}, None),
        ("None", {"string"}, "None"),
        ('{"a": [1]}', {"object"}, {"a": [1]}),
        ("{'a': (1, True)}", {"object"}, {"a": [1, True]}),
        ("{broken", {"object"}, "{broken"),
        ("[1]", {"object"}, "[1]"),
        ("[1]", {"string", "array"}, [1]),
        ("5", ANY, 5),
        ("text", ANY, "text"),
        ("", ANY, ""),
        ("", {"integer"}, ""),
        ("x" * 100_000, {"array"}, "x" * 100_000),
        ("[" * 100_000, {"array"}, "[" * 100_000),
        ("٣", {"integer"}, "٣"),
    ],
)
def test_values(text, types, value) -> None:
    assert json.loads(as_json(text, frozenset(types))) == value


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x)))
def test_any_json_is_itself_where_its_type_is_allowed(value) -> None:
    types = {list: "array", int: "integer", type(None): "null", str: "string"}
    text = value if isinstance(value, str) else json.dumps(value)
    assert json.loads(as_json(text, frozenset({types[type(value)]}))) == value


def test_a_string_is_known_by_its_first_character() -> None:
    union = frozenset({"string", "integer", "null"})
    assert is_text(union, "h")
    assert not is_text(union, "5")
    assert not is_text(union, "n")
    assert is_text(frozenset({"string"}), "5")
    assert is_text(ANY, "h")
    assert not is_text(ANY, "[")
    assert not is_text(frozenset({"integer"}), "h")
