// SPDX-License-Identifier: Apache-2.0
// A transition consumes the state it comes from.
// clang: no matching function for call to 'Advance'|cannot bind to lvalue
// gcc: cannot bind rvalue reference
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Decoding Go(Prefilling& from) { return Advance(from); }
#else
Decoding Go(Prefilling& from) { return Advance(std::move(from)); }
#endif

}  // namespace tokenlight::control
