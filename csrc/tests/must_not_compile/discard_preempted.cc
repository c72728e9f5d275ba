// SPDX-License-Identifier: Apache-2.0
// A preempted request must go back to the queue.
// clang: ignoring return value of function declared with 'nodiscard'
// gcc: ignoring return value of
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Go(Decoding&& from, StepLedger& ledger) { Preempt(std::move(from), ledger); }
#else
Waiting Go(Decoding&& from, StepLedger& ledger) { return Preempt(std::move(from), ledger); }
#endif

}  // namespace tokenlight::control
