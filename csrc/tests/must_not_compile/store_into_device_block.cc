// SPDX-License-Identifier: Apache-2.0
// A store writes to the host.
// clang: no viable conversion|no matching|could not convert|no known conversion
// gcc: cannot convert|could not convert|no matching
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
InCopy<HostExclusive> Aim(DeviceExclusive block) { return InCopy<HostExclusive>(std::move(block)); }
#else
InCopy<HostExclusive> Aim(HostExclusive block) { return InCopy<HostExclusive>(std::move(block)); }
#endif

}  // namespace tokenlight::control
