// SPDX-License-Identifier: Apache-2.0
// A block is taken out of what was promised.
// clang: no matching member function|non-const lvalue reference|too few arguments
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
FreeBlock<Tier::kDevice> Get(DevicePool& pool) { return pool.Take(1); }
#else
FreeBlock<Tier::kDevice> Get(DevicePool& pool, Reservation<Tier::kDevice>& promise) {
    return pool.Take(promise);
}
#endif

}  // namespace tokenlight::control
