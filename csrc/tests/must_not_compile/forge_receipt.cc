// SPDX-License-Identifier: Apache-2.0
// Only the ledger gives receipts, and only for a guard.
// clang: calling a private constructor of class 'tokenlight::control::StepReceipt'
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
StepReceipt Forge(StepLedger&, StepId step) { return StepReceipt(step); }
#else
StepReceipt Earn(StepLedger& ledger, StepGuard&& guard) { return ledger.Return(std::move(guard)); }
#endif

}  // namespace tokenlight::control
