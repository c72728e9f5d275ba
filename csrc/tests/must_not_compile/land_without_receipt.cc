// SPDX-License-Identifier: Apache-2.0
// Landing asks for the proof that the step is back.
// clang: no matching function for call to 'Land'
// gcc: no matching function for call to 'Land
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Holdings Open(InStep<Holdings> holdings) { return Land(std::move(holdings)); }
#else
Holdings Open(InStep<Holdings> holdings, const StepReceipt& receipt) {
    return Land(std::move(holdings), receipt);
}
#endif

}  // namespace tokenlight::control
