// SPDX-License-Identifier: Apache-2.0
// A promise that nobody holds is none.
// clang: ignoring return value of function declared with 'nodiscard'
// gcc: ignoring return value of
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Reserve(DevicePool& pool) { pool.TryReserve(1); }
#else
bool Reserve(DevicePool& pool) { return pool.TryReserve(1).has_value(); }
#endif

}  // namespace tokenlight::control
