# SPDX-License-Identifier: Apache-2.0
"""Fields of plain objects, which clients send in kinds that no schema lists."""

from __future__ import annotations

from typing import Any

from tokenlight.base.errors import InvalidRequest
from tokenlight.text.conversation import Shape


def string_of(sent: dict[str, Any], key: str) -> str:
    """A field that is a text; "" where it is missing or anything else."""
    value = sent.get(key)
    return value if isinstance(value, str) else ""


def schema_shape(schema: object, *, param: str, field: str) -> Shape:
    """The shape of a JSON Schema.

    Args:
        schema: what was sent.
        param: the field that asks for a shape, for what cannot be enforced.
        field: the one that the schema stands in.

    Raises:
        InvalidRequest: it is no object.
    """
    if not isinstance(schema, dict):
        raise InvalidRequest(f"{field!r} must be an object: a JSON Schema", param=field)
    return Shape(json_schema=schema, param=param)
