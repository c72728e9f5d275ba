# SPDX-License-Identifier: Apache-2.0
"""Tools that clients name by type alone, and run themselves: what their input looks like."""

from __future__ import annotations

from typing import Any


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_OF_A_FILE: dict[str, dict[str, Any]] = {
    "path": _STRING,
    "file_text": _STRING,
    "old_str": _STRING,
    "new_str": _STRING,
    "insert_line": _INTEGER,
    "insert_text": _STRING,
    "view_range": {"type": "array", "items": _INTEGER},
}

_SCHEMAS = {
    "bash": _object([], command=_STRING, restart={"type": "boolean"}),
    "text_editor": _object(
        ["command", "path"],
        command={"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
        **_OF_A_FILE,
    ),
    "memory": _object(
        ["command"],
        command={
            "type": "string",
            "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
        },
        **_OF_A_FILE,
        old_path=_STRING,
        new_path=_STRING,
    ),
}


def schema_of_client_tool(kind: str) -> dict[str, Any] | None:
    """The input schema of a type like `bash_20250124`; None for other tools."""
    name, _, version = kind.rpartition("_")
    return _SCHEMAS.get(name) if version.isdigit() else None
