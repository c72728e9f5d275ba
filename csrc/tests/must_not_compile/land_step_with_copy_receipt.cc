// SPDX-License-Identifier: Apache-2.0
// What a step names is not landed by a copy.
// clang: no matching function for call to 'Land'
// gcc: no matching function for call to
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Holdings Open(InStep<Holdings> holdings, const CopyReceipt& receipt) {
    return Land(std::move(holdings), receipt);
}
#else
Holdings Open(InCopy<Holdings> holdings, const CopyReceipt& receipt) {
    return Land(std::move(holdings), receipt);
}
#endif

}  // namespace tokenlight::control
