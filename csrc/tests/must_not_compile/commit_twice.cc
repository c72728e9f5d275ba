// SPDX-License-Identifier: Apache-2.0
// A step is committed once.
// clang: argument not in expected state; expected 'unconsumed', observed 'consumed'
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) {
        scheduler.Commit(std::move(guard), {}, out);
        scheduler.Commit(std::move(guard), {}, out);
    }
}
#else
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) {
        scheduler.Commit(std::move(guard), {}, out);
    }
}
#endif

}  // namespace tokenlight::control
