// SPDX-License-Identifier: Apache-2.0
// A request whose prompt is not computed has nothing to finish with; it can be aborted.
// clang: no viable conversion|no matching function for call to 'Finish'
// gcc: cannot convert|could not convert|invalid initialization|conversion from .* requested
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
Finished Go(Prefilling&& from, StepLedger& ledger) {
    return Finish(std::move(from), FinishReason::kStop, ledger);
}
#else
Finished Go(Decoding&& from, StepLedger& ledger) {
    return Finish(std::move(from), FinishReason::kStop, ledger);
}
#endif

}  // namespace tokenlight::control
