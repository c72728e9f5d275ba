// SPDX-License-Identifier: Apache-2.0
// An exclusive block becomes shared by publishing only.
// clang: no viable conversion
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceShared Settle(DevicePool&, DeviceExclusive block, const BlockName&) {
    return std::move(block);
}
#else
DeviceShared Settle(DevicePool& pool, DeviceExclusive block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#endif

}  // namespace tokenlight::control
