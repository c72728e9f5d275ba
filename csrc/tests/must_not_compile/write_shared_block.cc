// SPDX-License-Identifier: Apache-2.0
// A shared block is read-only: it cannot be the target of a copy.
// clang: no matching function for call to 'MakeCopy'|could not bind|no viable conversion
// gcc: invalid initialization of reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
BlockCopy Copy(const DeviceShared& from, const DeviceShared& to) { return MakeCopy(from, to, 1); }
#else
BlockCopy Copy(const DeviceShared& from, const DeviceExclusive& to) {
    return MakeCopy(from, to, 1);
}
#endif

}  // namespace tokenlight::control
