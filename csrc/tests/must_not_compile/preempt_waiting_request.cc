// SPDX-License-Identifier: Apache-2.0
// A waiting request has nothing that could be taken from it.
// clang: no matching function for call to 'Preempt'
// gcc: no matching function for call to
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Waiting Go(Waiting&& from, StepLedger& ledger) { return Preempt(std::move(from), ledger); }
#else
Waiting Go(Decoding&& from, StepLedger& ledger) { return Preempt(std::move(from), ledger); }
#endif

}  // namespace tokenlight::control
