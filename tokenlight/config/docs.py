# SPDX-License-Identifier: Apache-2.0
"""docs/config.md, generated: `python -m tokenlight.config.docs` prints it."""

from __future__ import annotations

import sys

from tokenlight.base.env import Env
from tokenlight.config.engine import EngineConfig
from tokenlight.config.flags import REFUSED, Flag, field_docs, flags_of
from tokenlight.config.server import ServerConfig

_HEAD = """\
# Configuration

Generated from the config dataclasses by `make docs`; edit the fields, not this page.
`tokenlight serve --help` prints the same. A flag wins over the environment, the environment over
the default.

With `tokenlight serve --config FILE`, flags come from a YAML file as well, by their names:
`port: 8001`, `enable-prefix-caching: false`, `served-model-name: [one, two]`, `model: some.gguf`.
A flag on the command line wins over the file, the file over the environment.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, config in (("Engine", EngineConfig), ("Server", ServerConfig)):
        parts.append(f"\n## {title}\n\n| flag | default | meaning |\n|---|---|---|\n")
        parts.extend(_row(flag) for flag in flags_of(config))
    parts.append("\n## Refused flags\n\n| flag | why |\n|---|---|\n")
    parts.extend(f"| `{name}` | {why} |\n" for name, why in REFUSED.items())
    parts.append("\n## Environment variables\n\n| variable | meaning |\n|---|---|\n")
    for text in field_docs(Env).values():
        name, _, meaning = text.partition(": ")
        parts.append(f"| `{name}` | {_cell(meaning)} |\n")
    return "".join(parts)


def _row(flag: Flag) -> str:
    choices = f" One of: {', '.join(f'`{c}`' for c in flag.choices)}." if flag.choices else ""
    if flag.on is not None:
        choices = ""
    return f"| `{flag.shown}` | {_shown_default(flag)} | {_cell(flag.help)}{choices} |\n"


def _shown_default(flag: Flag) -> str:
    if flag.default in (None, "", ()):
        return ""
    if flag.on is not None:
        return "on" if flag.default == flag.on else "off"
    return f"`{flag.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
