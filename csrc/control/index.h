// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/hash.h"

namespace tokenlight::control {

// Key -> block, open addressing at half load; the keys stay in the block records, so an entry is 8
// bytes.
class PrefixIndex {
  public:
    static constexpr std::int32_t kAbsent = -1;

    explicit PrefixIndex(std::int32_t num_blocks)
        : entries_(std::bit_ceil(static_cast<std::size_t>(num_blocks) * 2 + 2)),
          mask_(entries_.size() - 1) {}

    // `key_of(block)` reads a block's key.
    template <typename KeyOf>
    [[nodiscard]] std::int32_t Find(const Hash128& key, const KeyOf& key_of) const {
        const std::uint32_t tag = TagOf(key);
        for (std::size_t at = key.low & mask_; entries_[at].block != kAbsent;
             at = (at + 1) & mask_) {
            if (entries_[at].tag == tag && key_of(entries_[at].block) == key)
                return entries_[at].block;
        }
        return kAbsent;
    }

    [[nodiscard]] std::size_t num_bytes() const { return entries_.capacity() * sizeof(Entry); }
    void Prefetch(const Hash128& key) const { __builtin_prefetch(&entries_[key.low & mask_]); }

    // The key must be absent.
    void Insert(const Hash128& key, std::int32_t block) {
        std::size_t at = key.low & mask_;
        while (entries_[at].block != kAbsent) at = (at + 1) & mask_;
        entries_[at] = {TagOf(key), block};
    }

    // The key must be present. Later entries move back into the gap, so that no tombstones pile up.
    template <typename KeyOf>
    void Erase(const Hash128& key, std::int32_t block, const KeyOf& key_of) {
        std::size_t gap = key.low & mask_;
        while (entries_[gap].block != block) gap = (gap + 1) & mask_;
        for (std::size_t at = (gap + 1) & mask_; entries_[at].block != kAbsent;
             at = (at + 1) & mask_) {
            const std::size_t home = key_of(entries_[at].block).low & mask_;
            if (((at - home) & mask_) >= ((at - gap) & mask_)) {
                entries_[gap] = entries_[at];
                gap = at;
            }
        }
        entries_[gap] = {};
    }

  private:
    struct Entry {
        std::uint32_t tag = 0;
        std::int32_t block = kAbsent;
    };
    static std::uint32_t TagOf(const Hash128& key) { return static_cast<std::uint32_t>(key.high); }

    std::vector<Entry> entries_;
    std::size_t mask_;
};

}  // namespace tokenlight::control
