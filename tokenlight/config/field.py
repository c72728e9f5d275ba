# SPDX-License-Identifier: Apache-2.0
"""How a config field declares its flag."""

from typing import Any

FLAG = "flag"


def flag(
    name: str | None = None,
    *,
    positional: str | None = None,
    on: str | None = None,
    off: str | None = None,
) -> dict[str, Any]:
    """Metadata for a dataclass field.

    Args:
        name: the flag that users type, with its dashes.
        positional: the metavar of a positional argument instead of a flag.
        on: the field's value when a boolean flag is given as `--name`.
        off: the field's value when it is given as `--no-name`.
    """
    return {FLAG: {"name": name, "positional": positional, "on": on, "off": off}}
