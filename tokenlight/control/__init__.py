# SPDX-License-Identifier: Apache-2.0
"""Python face of the C++ scheduler: submit, abort, plan, commit; the rest only reads."""

from tokenlight.control._control import (
    CacheGroup,
    CopyGuard,
    CopyPlan,
    Delta,
    Explanation,
    KvEvent,
    Scheduler,
    SchedulerConfig,
    Stats,
    StepGuard,
    StepPlan,
)
from tokenlight.control.errors import (
    ControlError,
    DuplicateRequest,
    EventsLost,
    ForeignGuard,
    MalformedResult,
    StepAlreadyCommitted,
    StepDropped,
    StepOutOfOrder,
    TooManySteps,
    WrongThread,
)
from tokenlight.control.groups import GroupedScheduler, plans_by_group
from tokenlight.control.plan import Counts, Plan, Planner

__all__ = [
    "CacheGroup",
    "ControlError",
    "CopyGuard",
    "CopyPlan",
    "Counts",
    "Delta",
    "DuplicateRequest",
    "EventsLost",
    "Explanation",
    "ForeignGuard",
    "GroupedScheduler",
    "KvEvent",
    "MalformedResult",
    "Plan",
    "Planner",
    "Scheduler",
    "SchedulerConfig",
    "Stats",
    "StepAlreadyCommitted",
    "StepDropped",
    "StepGuard",
    "StepOutOfOrder",
    "StepPlan",
    "TooManySteps",
    "WrongThread",
    "plans_by_group",
]
