// SPDX-License-Identifier: Apache-2.0
// What is in flight cannot be taken out, and so not freed, without its step's receipt.
// clang: 'resource_' is a private member
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Free(InStep<DeviceExclusive> block) {
    const DeviceExclusive gone = std::move(block.resource_);
}
#else
void Free(InStep<DeviceExclusive> block, const StepReceipt& receipt) {
    const DeviceExclusive gone = Land(std::move(block), receipt);
}
#endif

}  // namespace tokenlight::control
