// SPDX-License-Identifier: Apache-2.0
// A step that was planned must be committed.
// clang: invalid invocation of method '~StepGuard' on object 'guard' while it is in the 'unconsumed' state
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch&) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) return;
}
#else
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) scheduler.Commit(std::move(guard), {}, out);
}
#endif

}  // namespace tokenlight::control
