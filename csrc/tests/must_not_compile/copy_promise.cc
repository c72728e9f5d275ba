// SPDX-License-Identifier: Apache-2.0
// A promise is counted once.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Reservation<Tier::kDevice> Copy(const Reservation<Tier::kDevice>& promise) { return promise; }
#else
Reservation<Tier::kDevice> Move(Reservation<Tier::kDevice>&& promise) { return std::move(promise); }
#endif

}  // namespace tokenlight::control
