// SPDX-License-Identifier: Apache-2.0
// Landing consumes: what is merely looked at cannot be landed.
// clang: no matching function for call to 'Land'
// gcc: cannot bind rvalue reference|no matching function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
SlotLease Open(InStep<SlotLease>& slot, const StepReceipt& receipt) { return Land(slot, receipt); }
#else
SlotLease Open(InStep<SlotLease>& slot, const StepReceipt& receipt) {
    return Land(std::move(slot), receipt);
}
#endif

}  // namespace tokenlight::control
