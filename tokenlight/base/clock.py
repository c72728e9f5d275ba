# SPDX-License-Identifier: Apache-2.0
"""The one clock. The control plane gets time as an argument; only loops and doors read it."""

import time


def now_us() -> int:
    """Microseconds on a monotonic clock."""
    return time.monotonic_ns() // 1000


def now_s() -> float:
    """Seconds on a monotonic clock."""
    return time.monotonic()


def unix_s() -> int:
    """Whole seconds since 1970, for the `created` field of a protocol."""
    return int(time.time())
