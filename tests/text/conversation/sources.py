# SPDX-License-Identifier: Apache-2.0
"""Small chat templates, each with the ways of a family of real ones; see `templates/`.

chatml: any role anywhere, no tools. tools: tools, reasoning, system turns anywhere. forgetful: a
late system turn vanishes. stern: it is refused. tags: calls as tags, from objects only.
alternating: user and assistant in turn, nothing else. nines: call ids of nine characters, turns
alternate but for tools. single: one call a turn.
"""

from pathlib import Path

from tokenlight.text import ChatTemplate

SOURCES = {
    path.stem: path.read_text().removesuffix("\n")
    for path in sorted((Path(__file__).parent / "templates").glob("*.jinja"))
}


def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name])
