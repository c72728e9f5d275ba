// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "control/block.h"
#include "control/events.h"
#include "control/hash.h"
#include "control/ids.h"
#include "control/index.h"

namespace tokenlight::control {

struct PoolConfig {
    std::int32_t num_blocks = 0;
    std::int32_t block_tokens = 0;
    std::int32_t group = 0;
    // Keep each published block's token ids and its place in the tree of prefixes, to find where
    // prompts part.
    bool keeps_tokens = false;
};

// What a published block holds: `key` stands for its tokens and for all that precede them.
struct BlockName {
    Hash128 key;
    Hash128 parent_key;
    std::int32_t parent = -1;  // the block before it, where a group keeps the tree of prefixes
    std::uint64_t seed = 0;    // of the chain: two salts never share a part of a block
    std::span<const std::int32_t> token_ids;
};

// How far a prompt agrees with the nearest published block under one parent.
struct NearestBlock {
    std::int32_t block = -1;
    std::int32_t num_tokens = 0;
};

// All blocks of one cache group on one tier. Owns who-is-where; the handles in block.h own the
// blocks. Not copyable, not movable: handles point here. Every operation is O(1) but NearestChild,
// which is bounded.
template <Tier kTier>
class BlockPool {
  public:
    static constexpr std::int32_t kNone = -1;

    BlockPool(const PoolConfig& config, EventLog* events);
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    [[nodiscard]] std::int32_t num_blocks() const { return config_.num_blocks; }
    // Owned by nobody; a cached block is free as well.
    [[nodiscard]] std::int32_t num_free() const { return num_free_; }
    [[nodiscard]] std::int32_t num_cached() const { return num_cached_; }
    [[nodiscard]] std::int32_t num_unpromised() const { return num_free_ - num_promised_; }
    [[nodiscard]] std::size_t num_bytes() const;

    [[nodiscard]] std::optional<Reservation<kTier>> TryReserve(std::int32_t num_blocks);
    [[nodiscard]] Reservation<kTier> ReserveNone() { return {this, 0}; }

    // Both consume one promise, which must be there.
    [[nodiscard]] FreeBlock<kTier> Take(Reservation<kTier>& promise);
    [[nodiscard]] SharedBlock<kTier> ShareCold(std::int32_t block, Reservation<kTier>& promise);

    [[nodiscard]] ExclusiveBlock<kTier> Claim(TL_LIVE_PARAM FreeBlock<kTier>&& block);
    // For a block with owners; it cannot fail.
    [[nodiscard]] SharedBlock<kTier> ShareWarm(std::int32_t block);
    // nullopt when the block is cold and every free block is promised.
    [[nodiscard]] std::optional<SharedBlock<kTier>> TryShare(std::int32_t block);

    // The block's contents are final, and `name` says what they are. The key must be absent.
    [[nodiscard]] SharedBlock<kTier> Publish(TL_LIVE_PARAM ExclusiveBlock<kTier>&& block,
                                             const BlockName& name);

    [[nodiscard]] std::int32_t Find(const Hash128& key) const { return index_.Find(key, KeyOf()); }
    void Prefetch(const Hash128& key) const { index_.Prefetch(key); }
    [[nodiscard]] bool IsCold(std::int32_t block) const { return at(block).num_owners == 0; }
    // Was a block of this key evicted, as far as we remember?
    [[nodiscard]] bool WasEvicted(const Hash128& key) const;
    // Among the children of `parent` (kNone: the first blocks of prompts) under one seed, the
    // longest agreement with `token_ids`. Looks at the most recent few only.
    [[nodiscard]] NearestBlock NearestChild(std::int32_t parent, std::uint64_t seed,
                                            std::span<const std::int32_t> token_ids) const;
    // Does a prompt of another seed begin with the same block? Looks at the most recent few only.
    [[nodiscard]] bool HasForeignRoot(std::uint64_t seed,
                                      std::span<const std::int32_t> token_ids) const;
    [[nodiscard]] const Hash128& KeyAt(std::int32_t block) const { return at(block).key; }

  private:
    friend class FreeBlock<kTier>;
    friend class ExclusiveBlock<kTier>;
    friend class SharedBlock<kTier>;
    friend class Reservation<kTier>;
    friend struct Inspector;

    // One cache line: an eviction touches few of them.
    struct alignas(64) Record {
        Hash128 key;
        std::uint64_t seed = 0;
        std::int32_t previous = kNone;  // in the free list, while nobody owns the block
        std::int32_t next = kNone;
        std::int32_t num_owners = 0;
        std::int32_t parent = kNone;  // in the tree of prefixes
        std::int32_t first_child = kNone;
        std::int32_t previous_sibling = kNone;
        std::int32_t next_sibling = kNone;
        bool is_published = false;
    };

    void ReturnBlank(BlockId<kTier> id);
    void ReturnShared(BlockId<kTier> id);
    void ReturnPromise(std::int32_t num_blocks) { num_promised_ -= num_blocks; }

    [[nodiscard]] std::int32_t sentinel() const { return config_.num_blocks; }
    Record& at(std::int32_t block) { return records_[static_cast<std::size_t>(block)]; }
    [[nodiscard]] const Record& at(std::int32_t block) const {
        return records_[static_cast<std::size_t>(block)];
    }
    [[nodiscard]] auto KeyOf() const {
        return [this](std::int32_t block) -> const Hash128& { return at(block).key; };
    }
    [[nodiscard]] std::span<std::int32_t> TokensOf(std::int32_t block) const;

    void LinkAfter(std::int32_t block, std::int32_t neighbour);
    void Unlink(std::int32_t block);
    void Evict(std::int32_t block);
    void JoinTree(std::int32_t block, std::int32_t parent);
    void LeaveTree(std::int32_t block);

    PoolConfig config_;
    EventLog* events_;
    // The record past the last block heads the free list (blank blocks first, then cached ones,
    // least recently used first) and is the root of the tree.
    std::vector<Record> records_;
    PrefixIndex index_;
    std::unique_ptr<std::int32_t[]> token_ids_;
    std::vector<std::uint32_t> evicted_tags_;
    std::int32_t num_free_ = 0;
    std::int32_t num_cached_ = 0;
    std::int32_t num_promised_ = 0;
};

using DevicePool = BlockPool<Tier::kDevice>;
using HostPool = BlockPool<Tier::kHost>;
extern template class BlockPool<Tier::kDevice>;
extern template class BlockPool<Tier::kHost>;

}  // namespace tokenlight::control
