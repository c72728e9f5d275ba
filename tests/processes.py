# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc tells of them: what ends while one looks is gone, and no fault of a test."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Of all threads of the process; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Running or stopped; one that has ended and was not yet waited for is not running."""
    try:
        return _stat(pid)[0] not in ("Z", "X")
    except OSError:
        return False


def is_asleep(pid: int) -> bool:
    """Waits for something, as it does inside a read of an empty pipe."""
    return _stat(pid)[0] == "S"


def cpu_s(*pids: int) -> float:
    """CPU time of these processes so far."""
    fields = [_stat(pid) for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS_PER_S


def _stat(pid: int) -> list[str]:
    """What follows the name, which may hold anything: the state first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def wait_until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Seconds until the condition held."""
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() - start_s < timeout_s, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - start_s
