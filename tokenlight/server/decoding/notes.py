# SPDX-License-Identifier: Apache-2.0
"""What was done to a request on its way in, announced in headers: nothing is dropped in silence.

x-tokenlight-neutralized   volatile lines taken out (--volatile-lines keep leaves them)
x-tokenlight-mended        what was wrong with the history, by the codes of `mend.py`
x-tokenlight-ignored       kinds of tools, items and content blocks that say nothing to a model
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]")
_MAX_KINDS = 16


class Notes:
    """Collected while a request is decoded."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def ignore(self, kind: object, *, unnamed: str = "unnamed") -> None:
        """What has no meaning here: under its kind, or as `unnamed` where it says none."""
        named = kind if isinstance(kind, str) and kind else unnamed
        self.add("ignored", {named[:64]: 1})

    def add(self, heading: str, counts: Mapping[str, int]) -> None:
        if counts:
            self._counts.setdefault(heading, Counter()).update(counts)

    def headers(self) -> dict[str, str]:
        return {
            f"x-tokenlight-{heading}": ", ".join(
                f"{_UNSAFE.sub('_', name)}={count}"
                for name, count in counts.most_common(_MAX_KINDS)
            )
            for heading, counts in self._counts.items()
        }
