// SPDX-License-Identifier: Apache-2.0
// Who has finished has given back its blocks.
// clang: no member named 'resident' in 'tokenlight::control::Finished'
// gcc: has no member named 'resident'
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Holdings Keep(Finished&& from) { return std::move(from.resident.holdings); }
#else
Holdings Keep(Decoding&& from) { return std::move(from.resident.holdings); }
#endif

}  // namespace tokenlight::control
