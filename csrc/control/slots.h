// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "control/ids.h"

namespace tokenlight::control {

class SlotPool;

// One row of the running batch: of the block tables, and of whatever the runner keeps per request.
class SlotLease {
  public:
    SlotLease(SlotLease&& from) noexcept
        : pool_(std::exchange(from.pool_, nullptr)), id_(from.id_) {}
    SlotLease& operator=(SlotLease&& from) noexcept {
        std::swap(pool_, from.pool_);
        std::swap(id_, from.id_);
        return *this;
    }
    ~SlotLease();

    [[nodiscard]] SlotId id() const { return id_; }

  private:
    friend class SlotPool;
    SlotLease(SlotPool* pool, SlotId id) : pool_(pool), id_(id) {}

    SlotPool* pool_;
    SlotId id_;
};

class SlotPool {
  public:
    explicit SlotPool(std::int32_t num_slots) {
        for (std::int32_t id = num_slots; id-- > 0;) free_.push_back(SlotId{id});
    }
    SlotPool(const SlotPool&) = delete;
    SlotPool& operator=(const SlotPool&) = delete;

    [[nodiscard]] std::optional<SlotLease> TryLease() {
        if (free_.empty()) return std::nullopt;
        const SlotId id = free_.back();
        free_.pop_back();
        return SlotLease(this, id);
    }
    [[nodiscard]] bool is_empty() const { return free_.empty(); }

  private:
    friend class SlotLease;
    friend struct Inspector;
    std::vector<SlotId> free_;
};

inline SlotLease::~SlotLease() {
    if (pool_ != nullptr) pool_->free_.push_back(id_);
}

// Requests of one state, found by slot, walked in the order in which they came into the state.
template <typename State>
class SlotMap {
  public:
    explicit SlotMap(std::int32_t num_slots) : by_slot_(static_cast<std::size_t>(num_slots)) {
        order_.reserve(by_slot_.size());
    }

    State& Put(State&& state) {
        const SlotId slot = state.resident.slot.id();
        order_.push_back(slot);
        return at(slot).emplace(std::move(state));
    }
    // The slot must be here.
    [[nodiscard]] State Take(SlotId slot) {
        State state = std::move(*at(slot));
        at(slot).reset();
        std::erase(order_, slot);
        return state;
    }
    [[nodiscard]] State* Find(SlotId slot) { return at(slot) ? &*at(slot) : nullptr; }
    [[nodiscard]] const State* Find(SlotId slot) const {
        return by_slot_[Index(slot)] ? &*by_slot_[Index(slot)] : nullptr;
    }

    [[nodiscard]] const std::vector<SlotId>& order() const { return order_; }
    [[nodiscard]] std::size_t size() const { return order_.size(); }

  private:
    static std::size_t Index(SlotId slot) { return static_cast<std::size_t>(Raw(slot)); }
    std::optional<State>& at(SlotId slot) { return by_slot_[Index(slot)]; }

    std::vector<std::optional<State>> by_slot_;
    std::vector<SlotId> order_;
};

}  // namespace tokenlight::control
