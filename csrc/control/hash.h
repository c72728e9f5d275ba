// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tokenlight::control {

struct Hash128 {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Hash128&, const Hash128&) = default;
};

using HashKey = std::array<std::uint8_t, 16>;

// SipHash with 128 bits of output: who does not know the process's key cannot aim for a collision.
// Chains use 1 round per word and 3 at the end; 2 and 4 have published test vectors.
template <int kRoundsPerWord, int kRoundsAtEnd>
Hash128 SipHash128(const HashKey& key, std::span<const std::uint8_t> bytes);

// Keys of blocks, chained: the key of a block stands for its tokens and for all that precede them.
class ChainHasher {
  public:
    explicit ChainHasher(const HashKey& key) : key_(key) {}

    // Where a chain starts; requests of different salt or adapter share nothing.
    [[nodiscard]] Hash128 Seed(std::span<const std::uint8_t> salt, std::int64_t adapter_id) const;
    [[nodiscard]] Hash128 Next(const Hash128& parent,
                               std::span<const std::int32_t> token_ids) const;

  private:
    HashKey key_;
};

}  // namespace tokenlight::control
