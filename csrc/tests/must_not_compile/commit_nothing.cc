// SPDX-License-Identifier: Apache-2.0
// Where nothing was planned there is nothing to commit.
// clang: argument not in expected state; expected 'unconsumed', observed '(unknown|consumed)'
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    scheduler.Commit(std::move(guard), {}, out);
}
#else
void Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    StepGuard guard = scheduler.Plan(0, plan);
    if (guard) scheduler.Commit(std::move(guard), {}, out);
}
#endif

}  // namespace tokenlight::control
