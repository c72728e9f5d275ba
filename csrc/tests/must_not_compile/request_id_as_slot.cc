// SPDX-License-Identifier: Apache-2.0
// A request is not its slot.
// clang: cannot initialize|no viable conversion|no matching
// gcc: cannot convert|could not convert
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
std::int32_t Look(const BlockTable& table, RequestId request) { return table.at(request, 0); }
#else
std::int32_t Look(const BlockTable& table, SlotId slot) { return table.at(slot, 0); }
#endif

}  // namespace tokenlight::control
