// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/copies.h"
#include "control/holdings.h"
#include "control/ledger.h"
#include "control/request.h"
#include "control/slots.h"

namespace tokenlight::control {

//                       Loading
//                     Load ^ | Loaded
//                          | v
//   Waiting --Admit--> Prefilling --Advance--> Decoding --Finish--> Finished
//      ^                   |                      |
//      '------Preempt------'-------Preempt--------'            End: from any state to Finished
//
// A state owns exactly what a request may hold while it is in it; leaving the state gives it back,
// at once or when the last step that names it is back.

// How far a running request has come, in tokens of KV.
struct Progress {
    std::int32_t num_computed = 0;  // by committed steps
    std::int32_t num_planned = 0;   // by steps in flight as well
    std::int32_t num_sampling = 0;  // steps in flight that sample for this request
    std::int32_t num_drafts =
        0;                 // drafts in flight: until they are judged, nothing can be planned on top
    StepId last_step{-1};  // the last step that names this request
};

struct Resident {
    std::unique_ptr<Request> request;
    SlotLease slot;
    Holdings holdings;
    Progress progress;
};

struct Waiting {
    std::unique_ptr<Request> request;
};
struct Prefilling {
    Resident resident;
};
// A part of its prompt is on the host and is being copied into blocks that it holds already.
struct Loading {
    Resident resident;
    std::vector<HostShared> sources;
    std::optional<CopyId> copy;  // once it was handed out
};
struct Decoding {
    Resident resident;
};
struct Finished {
    std::unique_ptr<Request> request;
    FinishReason reason;
};

// A request leaves the batch: what it held goes home behind the last step that names it.
[[nodiscard]] inline std::unique_ptr<Request> Leave(Resident&& from, StepLedger& ledger) {
    const StepId last = from.progress.last_step;
    ledger.Retire(last, std::move(from.holdings));
    if (IsPlanted(Mutant::kSlotReusedInFlight)) {
        [[maybe_unused]] const SlotLease gone = std::move(from.slot);
    } else {
        ledger.Retire(last, std::move(from.slot));
    }
    return std::move(from.request);
}

[[nodiscard]] inline Prefilling Admit(Waiting&& from, SlotLease&& slot, Holdings&& holdings,
                                      std::int32_t num_cached_tokens) {
    return {{std::move(from.request),
             std::move(slot),
             std::move(holdings),
             {.num_computed = num_cached_tokens, .num_planned = num_cached_tokens}}};
}

[[nodiscard]] inline Decoding Advance(Prefilling&& from) { return {std::move(from.resident)}; }

[[nodiscard]] inline Loading Load(Prefilling&& from, std::vector<HostShared>&& sources) {
    return {std::move(from.resident), std::move(sources), {}};
}
// However the copy ended: what it failed to bring is computed.
[[nodiscard]] inline Prefilling Loaded(Loading&& from, const CopyReceipt&) {
    return {std::move(from.resident)};
}

[[nodiscard]] inline Waiting Preempt(Prefilling&& from, StepLedger& ledger) {
    return {Leave(std::move(from.resident), ledger)};
}
[[nodiscard]] inline Waiting Preempt(Decoding&& from, StepLedger& ledger) {
    return {Leave(std::move(from.resident), ledger)};
}

[[nodiscard]] inline Finished Finish(Decoding&& from, FinishReason reason, StepLedger& ledger) {
    return {Leave(std::move(from.resident), ledger), reason};
}

// Ends a request in whatever state it is. Every state has its line; one without does not compile.
struct End {
    FinishReason reason;
    StepLedger& ledger;
    CopyLedger& copies;

    [[nodiscard]] Finished operator()(Waiting&& from) const {
        return {std::move(from.request), reason};
    }
    [[nodiscard]] Finished operator()(Prefilling&& from) const {
        return {Leave(std::move(from.resident), ledger), reason};
    }
    [[nodiscard]] Finished operator()(Loading&& from) const {
        if (from.copy && !IsPlanted(Mutant::kLoadEndsEarly)) {
            OpenCopy& open = copies.at(*from.copy);
            open.holdings.emplace_back(std::move(from.resident.holdings));
            open.slots.emplace_back(std::move(from.resident.slot));
            open.sources.emplace_back(std::move(from.sources));
        }
        return {std::move(from.resident.request), reason};
    }
    [[nodiscard]] Finished operator()(Decoding&& from) const {
        return {Leave(std::move(from.resident), ledger), reason};
    }
};

}  // namespace tokenlight::control
