// SPDX-License-Identifier: Apache-2.0
// Where any state may come, each is named: a visitor without a line for one does not compile.
// clang: no matching function for call to '?(__invoke|invoke)|no type named 'type'|static_assert|no viable|no matching
// gcc: no type named|no matching|static assertion|not a constant|invoke
#include "control/scheduler.h"

namespace tokenlight::control {

#ifdef MISUSE
struct EndSome {
    Finished operator()(Waiting&& from) const {
        return {std::move(from.request), FinishReason::kAbort};
    }
    Finished operator()(Decoding&& from) const {
        return {std::move(from.resident.request), FinishReason::kAbort};
    }
};
Finished Go(std::variant<Waiting, Prefilling, Decoding>&& any, StepLedger&, CopyLedger&) {
    return std::visit(EndSome{}, std::move(any));
}
#else
Finished Go(std::variant<Waiting, Prefilling, Decoding>&& any, StepLedger& ledger,
            CopyLedger& copies) {
    return std::visit(End{FinishReason::kAbort, ledger, copies}, std::move(any));
}
#endif

}  // namespace tokenlight::control
