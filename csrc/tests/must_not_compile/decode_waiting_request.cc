// SPDX-License-Identifier: Apache-2.0
// A waiting request has no blocks to decode into.
// clang: no viable conversion|no matching function for call to 'Advance'
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Decoding Go(Waiting&& from) { return Advance(std::move(from)); }
#else
Decoding Go(Prefilling&& from) { return Advance(std::move(from)); }
#endif

}  // namespace tokenlight::control
