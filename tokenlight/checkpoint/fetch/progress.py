# SPDX-License-Identifier: Apache-2.0
"""News of a fetch, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProgress:
    """One line of news. Bytes count within the stage."""

    stage: Literal["start", "wait", "download", "verify", "done", "stop"]
    text: str
    done_bytes: int = 0
    total_bytes: int = 0


Progress = Callable[[FetchProgress], None]


def no_progress(_: FetchProgress) -> None:
    """Say nothing."""


def megabytes(num_bytes: int) -> int:
    """For people: decimal, rounded."""
    return round(num_bytes / 1e6)
