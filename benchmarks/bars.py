# SPDX-License-Identifier: Apache-2.0
"""BAR lines: what a bench promised and what it measured; nothing is green by omission."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from statistics import median

_COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq}


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: `name` measured `relation` `required`, e.g. Bar("x", ">=", 0.5)."""

    name: str
    relation: str
    required: float

    def is_met(self, measured: float) -> bool:
        return bool(_COMPARE[self.relation](measured, self.required))


def report(bars: list[Bar], measured: dict[str, float], missing: dict[str, str]) -> int:
    """Print a line for each bar and return the exit status.

    Args:
        bars: every bar that the bench lists.
        measured: figures by bar name.
        missing: for bars without a figure, why (a peer that is not installed, say).

    Returns:
        0 when each bar has a figure and meets it, else 1.
    """
    failures = 0
    for bar in bars:
        if bar.name in measured:
            value = measured[bar.name]
            is_ok = bar.is_met(value)
            print(
                f"BAR {bar.name} {value:.4g} {bar.relation}{bar.required:g} "
                f"{'ok' if is_ok else 'missed'}"
            )
        else:
            is_ok = False
            why = missing.get(bar.name, "not measured")
            print(f"BAR {bar.name} none {bar.relation}{bar.required:g} missed ({why})")
        failures += not is_ok
    return 1 if failures else 0


def ratio_of_medians(ours: list[float], peer: list[float]) -> float:
    """Median over median: what interleaved runs on a noisy machine can be compared by."""
    return median(ours) / median(peer)
