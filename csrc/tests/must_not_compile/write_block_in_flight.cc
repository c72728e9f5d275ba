// SPDX-License-Identifier: Apache-2.0
// A block that a step still names cannot be written.
// clang: no matching function for call to 'MakeCopy'|no viable conversion
// gcc: invalid initialization of reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
BlockCopy Copy(const DeviceShared& from, const InStep<DeviceExclusive>& to) {
    return MakeCopy(from, to, 1);
}
#else
BlockCopy Copy(const DeviceShared& from, InStep<DeviceExclusive> to, const StepReceipt& receipt) {
    const DeviceExclusive landed = Land(std::move(to), receipt);
    return MakeCopy(from, landed, 1);
}
#endif

}  // namespace tokenlight::control
