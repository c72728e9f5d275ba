// SPDX-License-Identifier: Apache-2.0
// A copy ends once.
// clang: argument not in expected state; expected 'unconsumed', observed 'consumed'
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Copy(Scheduler& scheduler, CopyPlan& plan) {
    CopyGuard guard = scheduler.PlanCopies(plan);
    if (guard) {
        scheduler.Commit(std::move(guard), false);
        scheduler.Commit(std::move(guard), true);
    }
}
#else
void Copy(Scheduler& scheduler, CopyPlan& plan) {
    CopyGuard guard = scheduler.PlanCopies(plan);
    if (guard) {
        scheduler.Commit(std::move(guard), true);
    }
}
#endif

}  // namespace tokenlight::control
