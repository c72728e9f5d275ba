// SPDX-License-Identifier: Apache-2.0
// Blocks go home by leaving a scope, not by being returned.
// clang: 'ReturnBlank' is a private member
// gcc: is private within this context
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
void Free(DevicePool& pool, DeviceExclusive block) { pool.ReturnBlank(block.id()); }
#else
void Free(DevicePool&, DeviceExclusive block) { const DeviceExclusive gone = std::move(block); }
#endif

}  // namespace tokenlight::control
