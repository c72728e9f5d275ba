// SPDX-License-Identifier: Apache-2.0
// A shared block's owners are counted: no one becomes an owner by copying a handle.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceShared Copy(DevicePool&, const DeviceShared& block) { return block; }
#else
DeviceShared Copy(DevicePool& pool, const DeviceShared& block) {
    return pool.ShareWarm(Raw(block.id()));
}
#endif

}  // namespace tokenlight::control
