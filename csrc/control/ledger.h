// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "control/block.h"
#include "control/holdings.h"
#include "control/ids.h"
#include "control/in_flight.h"
#include "control/mutants.h"
#include "control/slots.h"
#include "control/typestate.h"

namespace tokenlight::control {

class StepLedger;

// Proof that a step has come back: whoever holds one may open what was in flight until then.
class StepReceipt {
  public:
    StepReceipt(StepReceipt&&) = default;
    StepReceipt& operator=(StepReceipt&&) = delete;
    [[nodiscard]] StepId step() const { return step_; }

  private:
    friend class StepLedger;
    explicit StepReceipt(StepId step) : step_(step) {}
    StepId step_;
};

template <typename Resource>
using InStep = InFlight<Resource, StepReceipt>;

// The right to commit one step, exactly once. Empty when there was nothing to plan.
class TL_CONSUMABLE StepGuard {
  public:
    TL_RETURNS_UNKNOWN StepGuard() = default;
    StepGuard(StepGuard&& from) noexcept
        : ledger_(std::exchange(from.ledger_, nullptr)), step_(from.step_) {}
    StepGuard& operator=(StepGuard&&) = delete;
    TL_CALLABLE_WHEN("consumed") ~StepGuard();

    TL_TESTS_LIVE explicit operator bool() const { return ledger_ != nullptr; }
    [[nodiscard]] bool is_live() const { return ledger_ != nullptr; }
    [[nodiscard]] StepId step() const { return step_; }
    [[nodiscard]] bool BelongsTo(const StepLedger& ledger) const { return ledger_ == &ledger; }

  private:
    friend class StepLedger;
    TL_RETURNS_UNKNOWN StepGuard(StepLedger* ledger, StepId step) : ledger_(ledger), step_(step) {}

    StepLedger* ledger_ = nullptr;
    StepId step_{};
};

// A row of a planned step, as commit needs it.
struct StepRow {
    RequestId id;
    SlotId slot;
    std::int32_t num_tokens;
    std::int32_t num_samples;   // 0 for a prefill chunk that is not its prompt's last
    std::int32_t first_sample;  // index among the step's samples
    std::int32_t first_draft;   // index among the step's drafts; there are num_samples - 1
};

// Steps that are planned and not committed, oldest first, and what must outlive them.
class StepLedger {
  public:
    explicit StepLedger(std::int32_t overlap) : steps_(static_cast<std::size_t>(overlap) + 1) {}
    StepLedger(const StepLedger&) = delete;
    StepLedger& operator=(const StepLedger&) = delete;

    [[nodiscard]] bool is_full() const {
        return num_in_flight() == static_cast<std::int64_t>(steps_.size());
    }
    [[nodiscard]] std::int64_t num_in_flight() const { return next_ - oldest_; }
    [[nodiscard]] StepId next() const { return StepId{next_}; }
    [[nodiscard]] StepId oldest() const { return StepId{oldest_}; }
    [[nodiscard]] bool is_broken() const { return is_broken_; }

    // Rows and drafts of the step that is being planned.
    [[nodiscard]] std::vector<StepRow>& next_rows() { return at(next_).rows; }
    [[nodiscard]] std::vector<std::int32_t>& next_drafts() { return at(next_).draft_ids; }
    [[nodiscard]] const std::vector<StepRow>& oldest_rows() const { return at(oldest_).rows; }
    [[nodiscard]] const std::vector<std::int32_t>& oldest_drafts() const {
        return at(oldest_).draft_ids;
    }

    [[nodiscard]] TL_RETURNS_UNKNOWN StepGuard Begin() { return {this, StepId{next_++}}; }

    // The oldest step comes back; its rows are still to be read, its bag still to be landed.
    [[nodiscard]] StepReceipt Return(StepGuard&& guard) {
        guard.ledger_ = nullptr;
        ++oldest_;
        return StepReceipt(guard.step_);
    }
    [[nodiscard]] const std::vector<StepRow>& RowsOf(const StepReceipt& receipt) const {
        return at(Raw(receipt.step())).rows;
    }

    // Frees a resource that step `last` (or none later) may still name: now, or when that step is
    // back.
    template <typename Resource>
    void Retire(StepId last, Resource&& resource) {
        if (Raw(last) < oldest_ || IsPlanted(Mutant::kFreeInFlight)) {
            [[maybe_unused]] const std::remove_reference_t<Resource> gone = std::move(resource);
            return;
        }
        std::get<Bag<Resource>>(at(Raw(last)).bags).emplace_back(std::move(resource));
        ++num_retired_;
    }
    void LandAll(const StepReceipt& receipt) {
        Step& step = at(Raw(receipt.step()));
        std::apply([&](auto&... bag) { (LandBag(bag, receipt), ...); }, step.bags);
        step.rows.clear();
        step.draft_ids.clear();
    }
    // Something is on its way home: a shortage will pass without taking from anyone.
    [[nodiscard]] bool has_retired() const { return num_retired_ > 0; }

  private:
    friend class StepGuard;
    friend struct Inspector;

    template <typename Resource>
    using Bag = std::vector<InStep<Resource>>;
    struct Step {
        std::vector<StepRow> rows;
        std::vector<std::int32_t> draft_ids;
        std::tuple<Bag<Holdings>, Bag<SlotLease>, Bag<DeviceExclusive>, Bag<DeviceShared>> bags;
    };

    template <typename Resource>
    void LandBag(Bag<Resource>& bag, const StepReceipt& receipt) {
        for (InStep<Resource>& item : bag) {
            [[maybe_unused]] const Resource home = Land(std::move(item), receipt);
            --num_retired_;
        }
        bag.clear();
    }
    Step& at(std::int64_t step) { return steps_[static_cast<std::size_t>(step) % steps_.size()]; }
    [[nodiscard]] const Step& at(std::int64_t step) const {
        return steps_[static_cast<std::size_t>(step) % steps_.size()];
    }

    std::vector<Step> steps_;
    std::int64_t oldest_ = 0;
    std::int64_t next_ = 0;
    std::int64_t num_retired_ = 0;
    bool is_broken_ = false;
};

// A step that was lost may still run on a device: its blocks can never be shown to be unread.
inline StepGuard::~StepGuard() {
    if (ledger_ != nullptr) ledger_->is_broken_ = true;
}

}  // namespace tokenlight::control
