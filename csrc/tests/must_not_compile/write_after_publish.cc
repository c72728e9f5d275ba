// SPDX-License-Identifier: Apache-2.0
// What was published is not ours to write any more.
// clang: invalid invocation of method 'id' on object 'block' while it is in the 'consumed' state
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceBlockId Settle(DevicePool& pool, DeviceExclusive block, const BlockName& name) {
    const DeviceShared shared = pool.Publish(std::move(block), name);
    return block.id();
}
#else
DeviceBlockId Settle(DevicePool& pool, DeviceExclusive block, const BlockName& name) {
    const DeviceShared shared = pool.Publish(std::move(block), name);
    return shared.id();
}
#endif

}  // namespace tokenlight::control
