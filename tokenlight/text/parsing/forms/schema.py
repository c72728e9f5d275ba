# SPDX-License-Identifier: Apache-2.0
"""What a JSON Schema says of the types a value may have, and a bare text as JSON of such a type.

Only what decides between "this text is the string itself" and "this text is JSON" is read; whether
a value satisfies the schema is not this module's business.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tokenlight.text.parsing.forms.literal import python_as_json

ANY: frozenset[str] = frozenset()
"""No type is known: JSON where the text is JSON, else a string."""

_JSON_TYPE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_DEPTH = 16
_FIRST = {
    "integer": "-+0123456789",
    "number": "-+.0123456789",
    "boolean": "tfTF",
    "null": "nN",
    "array": "[(",
    "object": "{",
}


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that `schema` allows; `ANY` where it does not say.

    Args:
        schema: one property's schema.
        root: the document that local references point into.
        depth: how many references and unions led here; deep nests say nothing.
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return ANY
    named = schema.get("type")
    if isinstance(named, str | list):
        return frozenset((named,) if isinstance(named, str) else filter(_is_name, named))
    if isinstance(reference := schema.get("$ref"), str):
        return types_of(_resolve(reference, root), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(members := schema.get(key), list):
            parts = [types_of(member, root, depth + 1) for member in members]
            if key == "allOf":
                return next(filter(None, parts), ANY)
            return frozenset().union(*parts) if all(parts) else ANY
    return _types_of_values(schema)


def _types_of_values(schema: Mapping[str, Any]) -> frozenset[str]:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if isinstance(values, list) and values:
        return frozenset(map(_type_of, values))
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else ANY


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _type_of(value: Any) -> str:
    return _JSON_TYPE.get(type(value), "array" if isinstance(value, list) else "object")


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    if not reference.startswith("#"):
        return None
    for part in filter(None, reference[1:].split("/")):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found


def parameter_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """The types of one parameter of a tool whose arguments have `schema`."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return types_of(properties[name], schema)
    return ANY


def is_text(types: frozenset[str], first: str) -> bool:
    """Whether a value of `types` that begins with `first` can only be a string."""
    if types and "string" not in types:
        return False
    return not any(first in _FIRST.get(name, "") for name in types or _FIRST)


def as_json(text: str, types: frozenset[str]) -> str:
    """A bare text as JSON: of one of `types` where it can be read so, else a string."""
    bare = text.strip()
    for name, read in _READERS.items():
        if (not types or name in types) and (found := read(bare)) is not None:
            return found
    return json.dumps(text, ensure_ascii=False)


def _number(text: str) -> str | None:
    found = python_as_json(text)
    return found if found and found[0] in "-0123456789" else None


def _container(text: str, brackets: str, kind: type) -> str | None:
    if not text.startswith(tuple(brackets)):
        return None
    try:
        msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return python_as_json(text)
    return text


_READERS: dict[str, Callable[[str], str | None]] = {
    "null": lambda text: "null" if text in ("null", "None") else None,
    "boolean": lambda text: {"true": "true", "false": "false"}.get(text.lower()),
    "integer": _number,
    "number": _number,
    "object": lambda text: _container(text, "{", dict),
    "array": lambda text: _container(text, "[(", list),
}
