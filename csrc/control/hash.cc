// SPDX-License-Identifier: Apache-2.0
#include "control/hash.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace tokenlight::control {
namespace {

std::uint64_t LoadWord(const std::uint8_t* bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
}

template <int kRoundsPerWord, int kRoundsAtEnd>
class SipState {
  public:
    explicit SipState(const HashKey& key) {
        const std::uint64_t k0 = LoadWord(key.data());
        const std::uint64_t k1 = LoadWord(key.data() + 8);
        v0_ = 0x736f6d6570736575ULL ^ k0;
        v1_ = 0x646f72616e646f6dULL ^ k1 ^ 0xee;
        v2_ = 0x6c7967656e657261ULL ^ k0;
        v3_ = 0x7465646279746573ULL ^ k1;
    }

    void Absorb(std::uint64_t word) {
        v3_ ^= word;
        for (int i = 0; i < kRoundsPerWord; ++i) Round();
        v0_ ^= word;
    }

    void AbsorbBytes(std::span<const std::uint8_t> bytes) {
        std::size_t at = 0;
        for (; at + 8 <= bytes.size(); at += 8) Absorb(LoadWord(bytes.data() + at));
        num_bytes_ += bytes.size();
        tail_ = 0;
        for (std::size_t i = at; i < bytes.size(); ++i) {
            tail_ |= static_cast<std::uint64_t>(bytes[i]) << (8 * (i - at));
        }
    }

    Hash128 Finish() {
        Absorb(tail_ | static_cast<std::uint64_t>(num_bytes_ & 0xff) << 56);
        v2_ ^= 0xee;
        for (int i = 0; i < kRoundsAtEnd; ++i) Round();
        const std::uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
        v1_ ^= 0xdd;
        for (int i = 0; i < kRoundsAtEnd; ++i) Round();
        return {low, v0_ ^ v1_ ^ v2_ ^ v3_};
    }

  private:
    void Round() {
        v0_ += v1_;
        v1_ = std::rotl(v1_, 13) ^ v0_;
        v0_ = std::rotl(v0_, 32);
        v2_ += v3_;
        v3_ = std::rotl(v3_, 16) ^ v2_;
        v0_ += v3_;
        v3_ = std::rotl(v3_, 21) ^ v0_;
        v2_ += v1_;
        v1_ = std::rotl(v1_, 17) ^ v2_;
        v2_ = std::rotl(v2_, 32);
    }

    std::uint64_t v0_, v1_, v2_, v3_;
    std::uint64_t tail_ = 0;
    std::size_t num_bytes_ = 0;
};

using ChainState = SipState<1, 3>;

std::span<const std::uint8_t> Bytes(std::span<const std::int32_t> ids) {
    return {reinterpret_cast<const std::uint8_t*>(ids.data()), ids.size_bytes()};
}

}  // namespace

template <int kRoundsPerWord, int kRoundsAtEnd>
Hash128 SipHash128(const HashKey& key, std::span<const std::uint8_t> bytes) {
    SipState<kRoundsPerWord, kRoundsAtEnd> state(key);
    state.AbsorbBytes(bytes);
    return state.Finish();
}

template Hash128 SipHash128<1, 3>(const HashKey&, std::span<const std::uint8_t>);
template Hash128 SipHash128<2, 4>(const HashKey&, std::span<const std::uint8_t>);

Hash128 ChainHasher::Seed(std::span<const std::uint8_t> salt, std::int64_t adapter_id) const {
    ChainState state(key_);
    state.Absorb(static_cast<std::uint64_t>(adapter_id));
    state.AbsorbBytes(salt);
    return state.Finish();
}

Hash128 ChainHasher::Next(const Hash128& parent, std::span<const std::int32_t> token_ids) const {
    ChainState state(key_);
    state.Absorb(parent.low);
    state.Absorb(parent.high);
    state.AbsorbBytes(Bytes(token_ids));
    return state.Finish();
}

}  // namespace tokenlight::control
