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
    is_switch = flag.on is not None
    choices = ", ".join(f"`{choice}`" for choice in flag.choices)
    one_of = f" One of: {choices}." if choices and not is_switch else ""
    default = flag.shown_default
    shown = f"`{default}`" if default and not is_switch else default
    return f"| `{flag.shown}` | {shown} | {_cell(flag.help)}{one_of} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
