// SPDX-License-Identifier: Apache-2.0
// A free block belongs to nobody yet: it must be claimed before it is written.
// clang: no matching function for call to 'MakeCopy'|no viable conversion
// gcc: invalid initialization of reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
BlockCopy Copy(const DeviceShared& from, const FreeBlock<Tier::kDevice>& to) {
    return MakeCopy(from, to, 1);
}
#else
BlockCopy Copy(const DeviceShared& from, FreeBlock<Tier::kDevice> to, DevicePool& pool) {
    const DeviceExclusive claimed = pool.Claim(std::move(to));
    return MakeCopy(from, claimed, 1);
}
#endif

}  // namespace tokenlight::control
