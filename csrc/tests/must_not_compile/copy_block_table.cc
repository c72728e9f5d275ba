// SPDX-License-Identifier: Apache-2.0
// There is one table; a plan patches it.
// clang: call to deleted constructor of '(tokenlight::control::)?BlockTable'
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
BlockTable Copy(const BlockTable& table) { return table; }
#else
const BlockTable& Look(const BlockTable& table) { return table; }
#endif

}  // namespace tokenlight::control
