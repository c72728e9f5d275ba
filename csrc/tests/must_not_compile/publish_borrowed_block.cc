// SPDX-License-Identifier: Apache-2.0
// Only who owns a block can publish it.
// clang: cannot bind to lvalue|no matching member function
// gcc: cannot bind rvalue reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceShared Settle(DevicePool& pool, DeviceExclusive& block, const BlockName& name) {
    return pool.Publish(block, name);
}
#else
DeviceShared Settle(DevicePool& pool, DeviceExclusive&& block, const BlockName& name) {
    return pool.Publish(std::move(block), name);
}
#endif

}  // namespace tokenlight::control
