// SPDX-License-Identifier: Apache-2.0
// The guard that planning returns cannot be discarded.
// clang: ignoring return value of function declared with 'nodiscard'|method '~StepGuard' on a temporary object
// gcc: ignoring return value of .*Plan
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch&) { scheduler.Plan(0, plan); }
#else
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) scheduler.Commit(std::move(guard), {}, out);
}
#endif

}  // namespace tokenlight::control
