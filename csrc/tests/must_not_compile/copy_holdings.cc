// SPDX-License-Identifier: Apache-2.0
// What a request holds exists once.
// clang: call to (deleted|implicitly-deleted) (copy )?constructor|no matching function for call to|attempt to use a deleted function
// gcc: use of deleted function|no matching function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Holdings Copy(const Holdings& holdings) { return {{holdings.runs[0]}}; }
#else
Holdings Move(Holdings&& holdings) { return std::move(holdings); }
#endif

}  // namespace tokenlight::control
