# SPDX-License-Identifier: Apache-2.0
"""The schedulers that an engine needs: one, or one per group of ranks with KV of its own."""

from pathlib import Path

from tokenlight.control import GroupedScheduler, Planner, Scheduler, SchedulerConfig
from tokenlight.control.record import RecordingScheduler


def make_planner(settings: SchedulerConfig, num_groups: int, record: str | None) -> Planner:
    """Make them; what is recorded of several is a file each, with the group's number at its end."""
    if num_groups == 1:
        return _make(settings, record)
    files = [f"{record}.{group}" if record else None for group in range(num_groups)]
    return GroupedScheduler(
        [_make(settings, file) for file in files], max_num_requests=settings.max_num_requests
    )


def _make(settings: SchedulerConfig, record: str | None) -> Scheduler:
    return RecordingScheduler(settings, Path(record)) if record else Scheduler(settings)
