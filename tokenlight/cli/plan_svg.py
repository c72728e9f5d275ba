# SPDX-License-Identifier: Apache-2.0
"""A plan as a picture: a column per rank, a row per call, a bar where ranks talk."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

_COLUMN, _ROW, _LEFT, _TOP = 92, 18, 250, 40
_MAX_COLUMNS = 16
_COLOURS = {
    "all_reduce": "#d1495b",
    "all_gather": "#00798c",
    "reduce_scatter": "#edae49",
    "all_to_all": "#66508a",
}
_STYLE = (
    "text{font:11px monospace;fill:#222} .rank{font-weight:bold} .layer{font-weight:bold} "
    ".call{fill:#e8eaee;stroke:#c4c8d0}"
)


def draw(plan: dict[str, Any]) -> str:
    """An SVG document of what `tokenlight plan --json` prints; layers that are alike once."""
    num_ranks = min(plan["num_ranks"], _MAX_COLUMNS)
    parts = [
        _text(_LEFT + rank * _COLUMN + 4, _TOP - 10, f"rank {rank}", "rank")
        for rank in range(num_ranks)
    ]
    y = _TOP
    for layer in plan["layers"]:
        names = layer["names"]
        title = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} (x{len(names)})"
        parts.append(_text(8, y + 13, title, "layer"))
        y += _ROW
        for call in layer["calls"]:
            parts += _row(call, y, num_ranks)
            y += _ROW
        y += _ROW // 2
    width = _LEFT + num_ranks * _COLUMN + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'viewBox="0 0 {width} {y}"><style>{_STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _row(call: dict[str, Any], y: int, num_ranks: int) -> list[str]:
    label = call["at"] or call["op"]
    parts = [_text(20, y + 13, f"{label}"[:34])]
    colour = _COLOURS.get(call["op"])
    for rank in range(num_ranks):
        x = _LEFT + rank * _COLUMN
        fill = f' fill="{colour}"' if colour else ' class="call"'
        gap = 0 if colour and _talks_to_next(rank, call["group"]) else 4
        parts.append(f'<rect x="{x}" y="{y + 2}" width="{_COLUMN - gap}" height="14"{fill}/>')
        parts.append(_text(x + 4, y + 13, call["op"][:13]))
    return parts


def _talks_to_next(rank: int, group: Sequence[int]) -> bool:
    """Whether a rank and the one after it are in one group; every group is like the given one."""
    is_run = group[-1] - group[0] + 1 == len(group)
    return is_run and rank // len(group) == (rank + 1) // len(group)


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'
