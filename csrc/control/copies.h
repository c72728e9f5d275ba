// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "control/block.h"
#include "control/hash.h"
#include "control/holdings.h"
#include "control/in_flight.h"
#include "control/slots.h"
#include "control/typestate.h"

namespace tokenlight::control {

class CopyLedger;

// Proof that a copy between the tiers is over, well or badly.
class CopyReceipt {
  public:
    CopyReceipt(CopyReceipt&&) = default;
    CopyReceipt& operator=(CopyReceipt&&) = delete;
    [[nodiscard]] CopyId copy() const { return copy_; }

  private:
    friend class CopyLedger;
    explicit CopyReceipt(CopyId copy) : copy_(copy) {}
    CopyId copy_;
};

template <typename Resource>
using InCopy = InFlight<Resource, CopyReceipt>;

// The right to say how one copy ended, exactly once. Empty when there was nothing to copy.
class TL_CONSUMABLE CopyGuard {
  public:
    TL_RETURNS_UNKNOWN CopyGuard() = default;
    CopyGuard(CopyGuard&& from) noexcept
        : ledger_(std::exchange(from.ledger_, nullptr)), copy_(from.copy_) {}
    CopyGuard& operator=(CopyGuard&&) = delete;
    TL_CALLABLE_WHEN("consumed") ~CopyGuard();

    TL_TESTS_LIVE explicit operator bool() const { return ledger_ != nullptr; }
    [[nodiscard]] bool is_live() const { return ledger_ != nullptr; }
    [[nodiscard]] CopyId copy() const { return copy_; }
    [[nodiscard]] bool BelongsTo(const CopyLedger& ledger) const { return ledger_ == &ledger; }

  private:
    friend class CopyLedger;
    TL_RETURNS_UNKNOWN CopyGuard(CopyLedger* ledger, CopyId copy) : ledger_(ledger), copy_(copy) {}

    CopyLedger* ledger_ = nullptr;
    CopyId copy_{};
};

// One block to copy, whole.
struct CopyRow {
    std::int32_t is_store;  // 1: device to host, 0: host to device
    std::int32_t device_block;
    std::int32_t host_block;
};
struct CopyPlan {
    std::vector<CopyRow> rows;
};

// A cached block on its way to the host: pinned where it is, nobody's yet where it goes.
struct Store {
    InCopy<DeviceShared> from;
    InCopy<HostExclusive> to;
    Hash128 key;
    Hash128 parent_key;
};

// What a copy names; goes home, or is published, when the copy is over.
struct OpenCopy {
    std::vector<Store> stores;
    // Of a request that left while its blocks were being loaded.
    std::vector<InCopy<Holdings>> holdings;
    std::vector<InCopy<SlotLease>> slots;
    std::vector<InCopy<std::vector<HostShared>>> sources;
};

// Copies that were handed out and are not over. They may end in any order.
class CopyLedger {
  public:
    CopyLedger() = default;
    CopyLedger(const CopyLedger&) = delete;
    CopyLedger& operator=(const CopyLedger&) = delete;

    [[nodiscard]] TL_RETURNS_UNKNOWN CopyGuard Begin() {
        const CopyId copy{next_++};
        open_.try_emplace(copy);
        return {this, copy};
    }
    [[nodiscard]] OpenCopy& at(CopyId copy) { return open_.at(copy); }
    [[nodiscard]] CopyReceipt Return(CopyGuard&& guard) {
        guard.ledger_ = nullptr;
        return CopyReceipt(guard.copy_);
    }
    [[nodiscard]] OpenCopy Close(const CopyReceipt& receipt) {
        return std::move(open_.extract(receipt.copy()).mapped());
    }
    [[nodiscard]] bool is_idle() const { return open_.empty(); }
    [[nodiscard]] bool is_broken() const { return is_broken_; }

  private:
    friend class CopyGuard;
    friend struct Inspector;
    std::map<CopyId, OpenCopy> open_;
    std::int64_t next_ = 0;
    bool is_broken_ = false;
};

inline CopyGuard::~CopyGuard() {
    if (ledger_ != nullptr) ledger_->is_broken_ = true;
}

}  // namespace tokenlight::control
