// SPDX-License-Identifier: Apache-2.0
// The two tiers number their blocks apart.
// clang: cannot initialize return object of type|no viable conversion
// gcc: cannot convert
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
HostBlockId Rename(DeviceBlockId id) { return id; }
#else
HostBlockId Keep(HostBlockId id) { return id; }
#endif

}  // namespace tokenlight::control
