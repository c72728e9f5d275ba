// SPDX-License-Identifier: Apache-2.0
// There is one right to commit a step.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor of '(tokenlight::control::)?StepGuard'
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
StepGuard Copy(const StepGuard& guard) { return guard; }
#else
StepId Look(const StepGuard& guard) { return guard.step(); }
#endif

}  // namespace tokenlight::control
