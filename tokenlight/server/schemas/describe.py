# SPDX-License-Identifier: Apache-2.0
"""What a field may be, in words, read from the schema itself: both bounds, every choice."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

_SIZED: dict[type[inspect.Type], tuple[str, str]] = {
    inspect.StrType: ("a string", "characters"),
    inspect.ListType: ("a list", "items"),
    inspect.DictType: ("an object", "fields"),
}
_PATH = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def allowed_at(schema: type[msgspec.Struct], path: str) -> str | None:
    """What may stand at a path like `messages[0].role`; None when the path leads nowhere."""
    words = list(dict.fromkeys(w for w in map(_words, _types_at(schema, path)) if w))
    return " or ".join(words) if words else None


def names_at(schema: type[msgspec.Struct], path: str) -> list[str]:
    """The fields that the object at a path may have."""
    return [name for node in _types_at(schema, path) for name in _field_names(node)]


def value_at(body: object, path: str) -> object:
    """The value at a path like `messages[0].role`; None when the path leads nowhere."""
    found: Any = body
    for key, index in _PATH.findall(path):
        try:
            found = found[key] if key else found[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return found


def shown(value: object) -> str:
    """A value as its sender would recognise it, and no longer than a log line bears."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _types_at(schema: type[msgspec.Struct], path: str) -> list[inspect.Type]:
    nodes = [inspect.type_info(schema)]
    for key, index in _PATH.findall(path):
        nodes = [below for node in nodes for below in _below(node, key if not index else None)]
    return nodes


def _field_names(node: inspect.Type) -> list[str]:
    match node:
        case inspect.UnionType(types=types):
            return [name for inner in types for name in _field_names(inner)]
        case inspect.Metadata(type=inner):
            return _field_names(inner)
        case inspect.StructType(fields=fields):
            return [field.encode_name for field in fields]
    return []


def _below(node: inspect.Type, key: str | None) -> list[inspect.Type]:
    """The types one step down: of a field by its name, or of a list's items."""
    match node:
        case inspect.UnionType(types=types):
            return [below for inner in types for below in _below(inner, key)]
        case inspect.Metadata(type=inner):
            return _below(inner, key)
        case inspect.StructType(fields=fields) if key is not None:
            return [f.type for f in fields if f.encode_name == key]
        case inspect.ListType(item_type=item) if key is None:
            return [item]
        case inspect.DictType(value_type=value):
            return [value]
    return []


def _words(node: inspect.Type) -> str:
    match node:
        case inspect.Metadata(type=inner):
            return _words(inner)
        case inspect.UnionType(types=types):
            return " or ".join(filter(None, map(_words, types)))
        case inspect.IntType() | inspect.FloatType():
            return _number(node)
        case inspect.StrType() | inspect.ListType() | inspect.DictType():
            kind, unit = _SIZED[type(node)]
            return kind + _length(node, unit)
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(map(repr, values))
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.StructType():
            return "an object"
    return ""


def _number(node: inspect.IntType | inspect.FloatType) -> str:
    kind = "a whole number" if isinstance(node, inspect.IntType) else "a number"
    low = f"{node.ge}" if node.ge is not None else f"above {node.gt}"
    if (node.ge, node.gt) == (None, None):
        return kind if node.le is None else f"{kind} of at most {node.le}"
    if node.le is None:
        return f"{kind} of at least {low}" if node.ge is not None else f"{kind} {low}"
    return f"{kind} from {low} to {node.le}"


def _length(node: inspect.StrType | inspect.ListType | inspect.DictType, unit: str) -> str:
    low, high = node.min_length, node.max_length
    if low is not None and high is not None:
        return f" of {low} to {high} {unit}"
    if low is not None:
        return f" of at least {low} {unit}"
    return f" of at most {high} {unit}" if high is not None else ""
