// SPDX-License-Identifier: Apache-2.0
// A request is in one state.
// clang: call to implicitly-deleted copy constructor
// gcc: use of deleted function
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Waiting Copy(const Waiting& from) { return from; }
#else
Waiting Move(Waiting&& from) { return std::move(from); }
#endif

}  // namespace tokenlight::control
