// SPDX-License-Identifier: Apache-2.0
// Only planning gives guards.
// clang: calling a private constructor of class 'tokenlight::control::StepGuard'
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Forge(StepLedger& ledger) { const StepGuard guard(&ledger, StepId{0}); }
#else
bool Ask(const StepGuard& guard, const StepLedger& ledger) { return guard.BelongsTo(ledger); }
#endif

}  // namespace tokenlight::control
