// SPDX-License-Identifier: Apache-2.0
// Committing consumes the guard.
// clang: rvalue reference .* cannot bind to lvalue|no matching
// gcc: cannot bind rvalue reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Step(Scheduler& scheduler, StepGuard& guard, DeltaBatch& out) {
    scheduler.Commit(guard, {}, out);
}
#else
void Step(Scheduler& scheduler, StepGuard&& guard, DeltaBatch& out) {
    if (guard) scheduler.Commit(std::move(guard), {}, out);
}
#endif

}  // namespace tokenlight::control
