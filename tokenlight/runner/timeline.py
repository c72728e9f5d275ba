# SPDX-License-Identifier: Apache-2.0
"""Where the time from a process's start to its first step goes: one log line when it is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenlight.base.clock import now_s

_STAT = Path("/proc/self/stat")
# Of the fields after the name in parentheses: when the process started, in ticks since boot.
_STARTED_FIELD = 19
_TICKS_PER_S = 100  # what Linux tells programs, whatever the kernel's own are


class Timeline:
    """Phases and their seconds, in order. What no phase covers is `other`."""

    def __init__(self) -> None:
        self._begun_s = now_s()
        self.seconds: dict[str, float] = {"before": process_age_s()}
        """`before`: from the process's start until this began; imports, most of it."""

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What happens within is counted for `phase`; a phase that comes again is added up."""
        started_s = now_s()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + now_s() - started_s

    def fields(self) -> dict[str, float]:
        """Of the log line, each ending in its unit; their sum is the last."""
        phases = dict(self.seconds)
        total_s = phases["before"] + now_s() - self._begun_s
        phases["other"] = total_s - sum(phases.values())
        return {f"{phase}_s": seconds for phase, seconds in phases.items()} | {"total_s": total_s}


def process_age_s(stat: Path = _STAT) -> float:
    """Of this process; 0 where the system does not tell."""
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_STARTED_FIELD]) / _TICKS_PER_S
