// SPDX-License-Identifier: Apache-2.0
// A shared block is published already.
// clang: no viable conversion|no matching member function|cannot bind|could not be|no known conversion
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceShared Settle(DevicePool& pool, DeviceShared block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#else
DeviceShared Settle(DevicePool& pool, DeviceExclusive block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#endif

}  // namespace tokenlight::control
