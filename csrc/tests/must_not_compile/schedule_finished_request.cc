// SPDX-License-Identifier: Apache-2.0
// A finished request holds nothing and goes nowhere.
// clang: no viable conversion|no matching function for call to 'Advance'
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Decoding Go(Finished&& from) { return Advance(std::move(from)); }
#else
Decoding Go(Prefilling&& from) { return Advance(std::move(from)); }
#endif

}  // namespace tokenlight::control
