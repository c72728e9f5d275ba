// SPDX-License-Identifier: Apache-2.0
// Publishing consumes the block.
// clang: argument not in expected state; expected 'unconsumed', observed 'consumed'
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Settle(DevicePool& pool, DeviceExclusive block, const BlockName& name) {
    const DeviceShared first = pool.Publish(std::move(block), name);
    const DeviceShared second = pool.Publish(std::move(block), name);
}
#else
void Settle(DevicePool& pool, DeviceExclusive block, DeviceExclusive other, const BlockName& name) {
    const DeviceShared first = pool.Publish(std::move(block), name);
    const DeviceShared second = pool.Publish(std::move(other), name);
}
#endif

}  // namespace tokenlight::control
