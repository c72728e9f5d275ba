// SPDX-License-Identifier: Apache-2.0
// Blocks come out of a pool.
// clang: calling a private constructor
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceExclusive Forge(DevicePool& pool) { return DeviceExclusive(&pool, DeviceBlockId{3}); }
#else
DeviceExclusive Earn(DevicePool& pool, Reservation<Tier::kDevice>& promise) {
    return pool.Claim(pool.Take(promise));
}
#endif

}  // namespace tokenlight::control
