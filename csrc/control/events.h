// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/hash.h"

namespace tokenlight::control {

enum class KvEventKind : std::int32_t { kStored, kEvicted };

// One change of what a prefix could be served from. A router that has seen all of them knows the
// cache.
struct KvEvent {
    std::int64_t sequence = 0;
    KvEventKind kind = KvEventKind::kStored;
    std::int32_t group = 0;
    std::int32_t block = 0;
    Hash128 key;
    Hash128 parent;  // of a stored block; equal to the seed for the first block of a prompt
};

// The last `max_events` changes, numbered without gaps from 0.
class EventLog {
  public:
    explicit EventLog(std::int32_t max_events) : ring_(static_cast<std::size_t>(max_events)) {}

    void Record(KvEvent event) {
        if (ring_.empty()) return;
        event.sequence = next_sequence_++;
        ring_[static_cast<std::size_t>(event.sequence) % ring_.size()] = event;
    }

    [[nodiscard]] std::int64_t next_sequence() const { return next_sequence_; }
    // Events older than this are gone: who asks for them must start again from a snapshot.
    [[nodiscard]] std::int64_t oldest_sequence() const {
        const auto kept = static_cast<std::int64_t>(ring_.size());
        return next_sequence_ > kept ? next_sequence_ - kept : 0;
    }
    [[nodiscard]] const KvEvent& at(std::int64_t sequence) const {
        return ring_[static_cast<std::size_t>(sequence) % ring_.size()];
    }

  private:
    std::vector<KvEvent> ring_;
    std::int64_t next_sequence_ = 0;
};

}  // namespace tokenlight::control
