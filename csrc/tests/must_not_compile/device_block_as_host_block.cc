// SPDX-License-Identifier: Apache-2.0
// A device block is not a host block.
// clang: no viable conversion|no matching member function|cannot bind|no known conversion
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
HostShared Store(HostPool& pool, DeviceExclusive block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#else
HostShared Store(HostPool& pool, HostExclusive block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#endif

}  // namespace tokenlight::control
