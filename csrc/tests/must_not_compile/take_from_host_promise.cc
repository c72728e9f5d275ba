// SPDX-License-Identifier: Apache-2.0
// A promise of host blocks buys no device block.
// clang: no viable conversion|no matching member function|cannot bind|non-const lvalue reference
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
FreeBlock<Tier::kDevice> Get(DevicePool& pool, Reservation<Tier::kHost>& promise) {
    return pool.Take(promise);
}
#else
FreeBlock<Tier::kDevice> Get(DevicePool& pool, Reservation<Tier::kDevice>& promise) {
    return pool.Take(promise);
}
#endif

}  // namespace tokenlight::control
