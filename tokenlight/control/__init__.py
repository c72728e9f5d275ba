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

__all__ = [
    "CacheGroup",
    "ControlError",
    "CopyGuard",
    "CopyPlan",
    "Delta",
    "DuplicateRequest",
    "EventsLost",
    "Explanation",
    "ForeignGuard",
    "KvEvent",
    "MalformedResult",
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
]
