// SPDX-License-Identifier: Apache-2.0
// Being shared comes from being published.
// clang: calling a private constructor
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceShared Forge(DevicePool& pool) { return DeviceShared(&pool, DeviceBlockId{3}); }
#else
std::optional<DeviceShared> Earn(DevicePool& pool) { return pool.TryShare(3); }
#endif

}  // namespace tokenlight::control
