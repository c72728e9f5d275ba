// SPDX-License-Identifier: Apache-2.0
#include "control/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "control/mutants.h"

namespace tokenlight::control {
namespace {

// Enough to find where a conversation was edited; a bound, because thousands may start alike.
constexpr int kMaxSiblings = 8;
constexpr int kMaxRoots = 64;

std::int32_t CommonPrefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    const auto parts = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<std::int32_t>(parts.first - a.begin());
}

std::uint32_t EvictedTag(const Hash128& key) {
    return static_cast<std::uint32_t>(key.high >> 32) |
           1;  // never 0, which is "nothing evicted here"
}

}  // namespace

template <Tier kTier>
BlockPool<kTier>::BlockPool(const PoolConfig& config, EventLog* events)
    : config_(config),
      events_(events),
      records_(static_cast<std::size_t>(config.num_blocks) + 1),
      index_(config.num_blocks),
      evicted_tags_(std::bit_ceil(static_cast<std::size_t>(config.num_blocks) + 1)) {
    if (config.keeps_tokens) {
        token_ids_ = std::make_unique_for_overwrite<std::int32_t[]>(
            static_cast<std::size_t>(config.num_blocks) *
            static_cast<std::size_t>(config.block_tokens));
    }
    at(sentinel()).previous = sentinel();
    at(sentinel()).next = sentinel();
    for (std::int32_t block = 0; block < config.num_blocks; ++block) {
        LinkAfter(block, at(sentinel()).previous);
    }
}

template <Tier kTier>
std::size_t BlockPool<kTier>::num_bytes() const {
    const std::size_t tokens = token_ids_ == nullptr
                                   ? 0
                                   : static_cast<std::size_t>(config_.num_blocks) *
                                         static_cast<std::size_t>(config_.block_tokens) *
                                         sizeof(std::int32_t);
    return records_.capacity() * sizeof(Record) + index_.num_bytes() + tokens +
           evicted_tags_.capacity() * sizeof(std::uint32_t);
}

template <Tier kTier>
std::optional<Reservation<kTier>> BlockPool<kTier>::TryReserve(std::int32_t num_blocks) {
    const std::int32_t room = IsPlanted(Mutant::kPromiseTwice) ? num_free_ : num_unpromised();
    if (num_blocks > room) return std::nullopt;
    num_promised_ += num_blocks;
    return Reservation<kTier>(this, num_blocks);
}

template <Tier kTier>
FreeBlock<kTier> BlockPool<kTier>::Take(Reservation<kTier>& promise) {
    --promise.num_blocks_;
    --num_promised_;
    const std::int32_t block = at(sentinel()).next;
    if (at(block).is_published) Evict(block);
    Unlink(block);
    __builtin_prefetch(&at(at(sentinel()).next));
    return {this, BlockId<kTier>{block}};
}

template <Tier kTier>
ExclusiveBlock<kTier> BlockPool<kTier>::Claim(FreeBlock<kTier>&& block) {
    block.pool_ = nullptr;
    at(Raw(block.id_)).num_owners = 1;
    return {this, block.id_};
}

template <Tier kTier>
SharedBlock<kTier> BlockPool<kTier>::ShareWarm(std::int32_t block) {
    ++at(block).num_owners;
    return {this, BlockId<kTier>{block}};
}

template <Tier kTier>
SharedBlock<kTier> BlockPool<kTier>::ShareCold(std::int32_t block, Reservation<kTier>& promise) {
    --promise.num_blocks_;
    --num_promised_;
    if (!IsPlanted(Mutant::kShareWithoutUnlink)) {
        Unlink(block);
        --num_cached_;
    }
    return ShareWarm(block);
}

template <Tier kTier>
std::optional<SharedBlock<kTier>> BlockPool<kTier>::TryShare(std::int32_t block) {
    if (!IsCold(block)) return ShareWarm(block);
    std::optional<Reservation<kTier>> promise = TryReserve(1);
    if (!promise) return std::nullopt;
    return ShareCold(block, *promise);
}

template <Tier kTier>
SharedBlock<kTier> BlockPool<kTier>::Publish(ExclusiveBlock<kTier>&& block, const BlockName& name) {
    const std::int32_t id = Raw(block.id_);
    block.pool_ = nullptr;
    Record& record = at(id);
    record.key = name.key;
    record.seed = name.seed;
    record.is_published = true;
    index_.Insert(name.key, id);
    if (config_.keeps_tokens) {
        std::ranges::copy(name.token_ids, TokensOf(id).begin());
        JoinTree(id, name.parent);
    }
    events_->Record({.kind = KvEventKind::kStored,
                     .group = config_.group,
                     .block = id,
                     .key = name.key,
                     .parent = name.parent_key});
    return {this, block.id_};
}

template <Tier kTier>
bool BlockPool<kTier>::WasEvicted(const Hash128& key) const {
    return evicted_tags_[key.low & (evicted_tags_.size() - 1)] == EvictedTag(key);
}

template <Tier kTier>
NearestBlock BlockPool<kTier>::NearestChild(std::int32_t parent, std::uint64_t seed,
                                            std::span<const std::int32_t> token_ids) const {
    NearestBlock nearest;
    if (!config_.keeps_tokens) return nearest;
    std::int32_t child = at(parent == kNone ? sentinel() : parent).first_child;
    for (int i = 0; child != kNone && i < kMaxSiblings; ++i, child = at(child).next_sibling) {
        if (at(child).seed != seed) continue;
        const auto num_tokens = CommonPrefix(TokensOf(child), token_ids);
        if (num_tokens > nearest.num_tokens) nearest = {child, num_tokens};
    }
    return nearest;
}

template <Tier kTier>
bool BlockPool<kTier>::HasForeignRoot(std::uint64_t seed,
                                      std::span<const std::int32_t> token_ids) const {
    if (!config_.keeps_tokens) return false;
    std::int32_t child = at(sentinel()).first_child;
    for (int i = 0; child != kNone && i < kMaxRoots; ++i, child = at(child).next_sibling) {
        if (at(child).seed != seed &&
            CommonPrefix(TokensOf(child), token_ids) == config_.block_tokens) {
            return true;
        }
    }
    return false;
}

template <Tier kTier>
std::span<std::int32_t> BlockPool<kTier>::TokensOf(std::int32_t block) const {
    const auto tokens = static_cast<std::size_t>(config_.block_tokens);
    return {token_ids_.get() + static_cast<std::size_t>(block) * tokens, tokens};
}

template <Tier kTier>
void BlockPool<kTier>::ReturnBlank(BlockId<kTier> id) {
    at(Raw(id)).num_owners = 0;
    LinkAfter(Raw(id), sentinel());
}

template <Tier kTier>
void BlockPool<kTier>::ReturnShared(BlockId<kTier> id) {
    if (--at(Raw(id)).num_owners > 0) return;
    LinkAfter(Raw(id), at(sentinel()).previous);
    ++num_cached_;
}

template <Tier kTier>
void BlockPool<kTier>::LinkAfter(std::int32_t block, std::int32_t neighbour) {
    Record& record = at(block);
    record.previous = neighbour;
    record.next = at(neighbour).next;
    at(record.next).previous = block;
    at(neighbour).next = block;
    ++num_free_;
}

template <Tier kTier>
void BlockPool<kTier>::Unlink(std::int32_t block) {
    Record& record = at(block);
    at(record.previous).next = record.next;
    at(record.next).previous = record.previous;
    --num_free_;
}

template <Tier kTier>
void BlockPool<kTier>::Evict(std::int32_t block) {
    Record& record = at(block);
    if (!IsPlanted(Mutant::kEvictKeepsKey)) index_.Erase(record.key, block, KeyOf());
    evicted_tags_[record.key.low & (evicted_tags_.size() - 1)] = EvictedTag(record.key);
    if (config_.keeps_tokens) LeaveTree(block);
    record.is_published = false;
    --num_cached_;
    events_->Record({.kind = KvEventKind::kEvicted,
                     .group = config_.group,
                     .block = block,
                     .key = record.key,
                     .parent = {}});
}

template <Tier kTier>
void BlockPool<kTier>::JoinTree(std::int32_t block, std::int32_t parent) {
    Record& record = at(block);
    record.parent = parent == kNone ? sentinel() : parent;
    Record& above = at(record.parent);
    record.previous_sibling = kNone;
    record.next_sibling = above.first_child;
    if (above.first_child != kNone) at(above.first_child).previous_sibling = block;
    above.first_child = block;
}

// Owners return a prefix from its end, so children mostly go before their parent. One that outlives
// it (it was pinned for a copy) keeps a stale parent, whose list of children no longer begins with
// it.
template <Tier kTier>
void BlockPool<kTier>::LeaveTree(std::int32_t block) {
    Record& record = at(block);
    if (record.previous_sibling != kNone) {
        at(record.previous_sibling).next_sibling = record.next_sibling;
    } else if (at(record.parent).first_child == block) {
        at(record.parent).first_child = record.next_sibling;
    }
    if (record.next_sibling != kNone) {
        at(record.next_sibling).previous_sibling = record.previous_sibling;
    }
    record.first_child = kNone;
}

template class BlockPool<Tier::kDevice>;
template class BlockPool<Tier::kHost>;

}  // namespace tokenlight::control
