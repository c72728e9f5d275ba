# SPDX-License-Identifier: Apache-2.0
"""How the control plane can be misused: an error each, raised before anything has changed.

    InternalError
    '- ControlError
       |- WrongThread            a call from another thread than the one that made the scheduler
       |- DuplicateRequest       an id that is known and unfinished
       |- TooManySteps           planning past the overlap
       |- StepAlreadyCommitted   a guard used twice
       |- ForeignGuard           a guard of another scheduler
       |- StepOutOfOrder         a guard that is not the oldest
       |- StepDropped            a plan collected before its commit: the scheduler is lost
       |- MalformedResult        sampled ids that do not fit the plan
       '- EventsLost             events asked for that are no longer kept

A request that is too large or empty is the caller's to mend: `ContextTooLong`, `InvalidRequest`.
"""

from tokenlight.base.errors import InternalError


class ControlError(InternalError):
    code = "control_error"


class WrongThread(ControlError):
    code = "control_wrong_thread"


class DuplicateRequest(ControlError):
    code = "control_duplicate_request"


class TooManySteps(ControlError):
    code = "control_too_many_steps"


class StepAlreadyCommitted(ControlError):
    code = "control_step_already_committed"


class ForeignGuard(ControlError):
    code = "control_foreign_guard"


class StepOutOfOrder(ControlError):
    code = "control_step_out_of_order"


class StepDropped(ControlError):
    code = "control_step_dropped"


class MalformedResult(ControlError):
    code = "control_malformed_result"


class EventsLost(ControlError):
    code = "control_events_lost"
