// SPDX-License-Identifier: Apache-2.0
// A free block is claimed once.
// clang: argument not in expected state; expected 'unconsumed', observed 'consumed'
// gcc: blind
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Own(DevicePool& pool, FreeBlock<Tier::kDevice> block) {
    const DeviceExclusive first = pool.Claim(std::move(block));
    const DeviceExclusive second = pool.Claim(std::move(block));
}
#else
void Own(DevicePool& pool, FreeBlock<Tier::kDevice> block, FreeBlock<Tier::kDevice> other) {
    const DeviceExclusive first = pool.Claim(std::move(block));
    const DeviceExclusive second = pool.Claim(std::move(other));
}
#endif

}  // namespace tokenlight::control
