// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "control/ids.h"
#include "control/typestate.h"

namespace tokenlight::control {

template <Tier kTier>
class BlockPool;

//   pool --Take--> FreeBlock --Claim--> ExclusiveBlock --Publish--> SharedBlock
//    ^                 |                      |                          |
//    '-----------------'----------------------'--------------------------'   by leaving a scope
//
// Each is owned by whoever holds it and goes home when it is dropped. What a block may be used for
// is its type: only an exclusive block can be written, only a shared one can have several owners.

// Taken off the free list: holds nothing, belongs to nobody yet.
template <Tier kTier>
class TL_CONSUMABLE FreeBlock {
  public:
    FreeBlock(FreeBlock&& from) noexcept
        : pool_(std::exchange(from.pool_, nullptr)), id_(from.id_) {}
    FreeBlock& operator=(FreeBlock&&) = delete;
    ~FreeBlock() {
        if (pool_ != nullptr) pool_->ReturnBlank(id_);
    }

  private:
    friend class BlockPool<kTier>;
    FreeBlock(BlockPool<kTier>* pool, BlockId<kTier> id) : pool_(pool), id_(id) {}

    BlockPool<kTier>* pool_;
    BlockId<kTier> id_;
};

// One owner, writable, in no index.
template <Tier kTier>
class TL_CONSUMABLE ExclusiveBlock {
  public:
    ExclusiveBlock(ExclusiveBlock&& from) noexcept
        : pool_(std::exchange(from.pool_, nullptr)), id_(from.id_) {}
    ExclusiveBlock& operator=(ExclusiveBlock&& from) noexcept {
        std::swap(pool_, from.pool_);
        std::swap(id_, from.id_);
        return *this;
    }
    ~ExclusiveBlock() {
        if (pool_ != nullptr) pool_->ReturnBlank(id_);
    }

    TL_CALLABLE_WHEN("unconsumed", "unknown") [[nodiscard]] BlockId<kTier> id() const {
        return id_;
    }

  private:
    friend class BlockPool<kTier>;
    friend struct Inspector;
    ExclusiveBlock(BlockPool<kTier>* pool, BlockId<kTier> id) : pool_(pool), id_(id) {}

    BlockPool<kTier>* pool_;
    BlockId<kTier> id_;
};

// Published to the prefix index: read-only, counted; the last owner to leave makes it evictable.
template <Tier kTier>
class TL_CONSUMABLE SharedBlock {
  public:
    SharedBlock(SharedBlock&& from) noexcept
        : pool_(std::exchange(from.pool_, nullptr)), id_(from.id_) {}
    SharedBlock& operator=(SharedBlock&& from) noexcept {
        std::swap(pool_, from.pool_);
        std::swap(id_, from.id_);
        return *this;
    }
    ~SharedBlock() {
        if (pool_ != nullptr) pool_->ReturnShared(id_);
    }

    // Stands where a window has passed: owns nothing.
    [[nodiscard]] static SharedBlock Hollow() { return {nullptr, BlockId<kTier>{-1}}; }

    TL_CALLABLE_WHEN("unconsumed", "unknown") [[nodiscard]] BlockId<kTier> id() const {
        return id_;
    }

  private:
    friend class BlockPool<kTier>;
    friend struct Inspector;
    SharedBlock(BlockPool<kTier>* pool, BlockId<kTier> id) : pool_(pool), id_(id) {}

    BlockPool<kTier>* pool_;
    BlockId<kTier> id_;
};

// A promise of blocks that are still free: while it is held, taking that many cannot fail.
template <Tier kTier>
class Reservation {
  public:
    Reservation(Reservation&& from) noexcept
        : pool_(from.pool_), num_blocks_(std::exchange(from.num_blocks_, 0)) {}
    Reservation& operator=(Reservation&& from) noexcept {
        std::swap(pool_, from.pool_);
        std::swap(num_blocks_, from.num_blocks_);
        return *this;
    }
    ~Reservation() { pool_->ReturnPromise(num_blocks_); }

    [[nodiscard]] std::int32_t num_blocks() const { return num_blocks_; }
    void Merge(Reservation&& more) { num_blocks_ += std::exchange(more.num_blocks_, 0); }

  private:
    friend class BlockPool<kTier>;
    Reservation(BlockPool<kTier>* pool, std::int32_t num_blocks)
        : pool_(pool), num_blocks_(num_blocks) {}

    BlockPool<kTier>* pool_;
    std::int32_t num_blocks_;
};

using DeviceExclusive = ExclusiveBlock<Tier::kDevice>;
using DeviceShared = SharedBlock<Tier::kDevice>;
using HostExclusive = ExclusiveBlock<Tier::kHost>;
using HostShared = SharedBlock<Tier::kHost>;

}  // namespace tokenlight::control
