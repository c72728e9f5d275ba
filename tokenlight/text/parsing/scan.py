# SPDX-License-Identifier: Apache-2.0
"""Compiled searches for markers in running text that may be cut anywhere.

One regular expression finds the first marker or, at the end of the text, what may become one: that
much is held back, everything before it is decided.
"""

import re
from collections.abc import Iterable, Mapping

# The second bar is the full-width one of DeepSeek's control tokens.
_CONTROL = r"<(?:\|[^\s|<>]{1,48}\||\uff5c[^\s\uff5c<>]{1,48}\uff5c)>"
_CONTROL_PART = r"<(?:\|[^\s|<>]{0,48}\|?|\uff5c[^\s\uff5c<>]{0,48}\uff5c?)?"

CONTROL = re.compile(_CONTROL)
"""A control token's text, `<|im_end|>` or the like, of any model. Never content."""


def _beginnings(marker: str) -> str:
    """A pattern of every proper beginning of `marker`, the longest first."""
    pattern = ""
    for char in reversed(marker[:-1]):
        pattern = re.escape(char) + (f"(?:{pattern})?" if pattern else "")
    return pattern


def with_gaps(markers: Iterable[str], gap: int) -> tuple[str, ...]:
    """Each marker behind 0..gap newlines that belong to it and not to the text before it."""
    return tuple(
        "\n" * newlines + marker for marker in markers if marker for newlines in range(gap, -1, -1)
    )


def compile_scan(
    kinds: Mapping[str, Iterable[str]], *, patterns: Mapping[str, tuple[str, str]] | None = None
) -> re.Pattern[str]:
    """A search for the first of several markers; `found` says which kind it is.

    Every alternative begins with a literal character, which is what makes the search fast.

    Args:
        kinds: kind to markers; where two match at one place, the first wins.
        patterns: kind to (pattern, pattern of its beginnings), tried after the markers.
    """
    whole: list[tuple[str, str]] = []
    parts: list[str] = []
    for kind, markers in kinds.items():
        for marker in filter(None, markers):
            whole.append((kind, re.escape(marker)))
            parts.append(_beginnings(marker))
    for kind, (pattern, part) in (patterns or {}).items():
        whole.append((kind, pattern))
        parts.append(part)
    # Beginnings first: what ends the text may be a marker, and yet the beginning of a longer one.
    alternatives = [("part", part + r"\Z") for part in filter(None, parts)] + whole
    named = (
        f"{pattern}(?P<{kind}{number}>)" for number, (kind, pattern) in enumerate(alternatives)
    )
    return re.compile("|".join(named) or r"(?!)")


def found(match: re.Match[str] | None) -> str:
    """The kind of marker; "part" for a marker's beginning at the text's end, "" for none."""
    return match.lastgroup.rstrip("0123456789") if match and match.lastgroup else ""


CONTROL_PATTERN = {"control": (_CONTROL, _CONTROL_PART)}
"""The `patterns` entry that finds control tokens."""


def without_control(text: str) -> str:
    return CONTROL.sub("", text)
