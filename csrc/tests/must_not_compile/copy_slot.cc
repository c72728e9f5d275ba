// SPDX-License-Identifier: Apache-2.0
// A row of the batch has one request.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
SlotLease Copy(const SlotLease& slot) { return slot; }
#else
SlotLease Move(SlotLease&& slot) { return std::move(slot); }
#endif

}  // namespace tokenlight::control
