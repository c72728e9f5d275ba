// SPDX-License-Identifier: Apache-2.0
// An exclusive block has one owner.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
DeviceExclusive Copy(const DeviceExclusive& block) { return block; }
#else
DeviceExclusive Move(DeviceExclusive&& block) { return std::move(block); }
#endif

}  // namespace tokenlight::control
