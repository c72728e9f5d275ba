// SPDX-License-Identifier: Apache-2.0
// A copy that is over proves nothing about a step.
// clang: no matching member function for call to 'Commit'|no viable conversion
// gcc: no matching function for call to|could not convert|cannot convert
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void End(Scheduler& scheduler, CopyGuard&& guard, DeltaBatch& out) {
    scheduler.Commit(std::move(guard), StepResult{}, out);
}
#else
void End(Scheduler& scheduler, StepGuard&& guard, DeltaBatch& out) {
    if (guard) scheduler.Commit(std::move(guard), StepResult{}, out);
}
#endif

}  // namespace tokenlight::control
