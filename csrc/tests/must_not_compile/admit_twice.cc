// SPDX-License-Identifier: Apache-2.0
// A request that runs is not admitted again.
// clang: no viable conversion|no matching function for call to 'Admit'
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Prefilling Go(Prefilling&& from, SlotLease slot, Holdings holdings) {
    return Admit(std::move(from), std::move(slot), std::move(holdings), 0);
}
#else
Prefilling Go(Waiting&& from, SlotLease slot, Holdings holdings) {
    return Admit(std::move(from), std::move(slot), std::move(holdings), 0);
}
#endif

}  // namespace tokenlight::control
