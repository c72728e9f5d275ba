// SPDX-License-Identifier: Apache-2.0
// A copy that was handed out must be said to have ended.
// clang: invalid invocation of method '~CopyGuard' on object 'guard' while it is in the 'unconsumed' state
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Copy(Scheduler& scheduler, CopyPlan& plan) {
    CopyGuard guard = scheduler.PlanCopies(plan);
    if (guard) return;
}
#else
void Copy(Scheduler& scheduler, CopyPlan& plan) {
    CopyGuard guard = scheduler.PlanCopies(plan);
    if (guard) scheduler.Commit(std::move(guard), false);
}
#endif

}  // namespace tokenlight::control
