// SPDX-License-Identifier: Apache-2.0
// The parts that the explorer takes for granted: the hash, the index, the pool's promises and its
// eviction.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "control/pool.h"
#include "control/scheduler.h"

namespace tokenlight::control {
namespace {

int num_failures = 0;

void Expect(bool holds, const char* what, int line) {
    if (holds) return;
    std::printf("control_test.cc:%d: %s\n", line, what);
    ++num_failures;
}
#define EXPECT(condition) Expect(condition, #condition, __LINE__)

// From the authors' vectors: SipHash-2-4-128, key 00..0f, messages of 0 and 1 bytes (00).
void TestHashAgainstPublishedVectors() {
    HashKey key;
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
    const std::uint8_t of_nothing[] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                       0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
    const std::uint8_t of_zero[] = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                                    0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
    const std::vector<std::uint8_t> zero(1, 0);
    const Hash128 first = SipHash128<2, 4>(key, {});
    const Hash128 second = SipHash128<2, 4>(key, zero);
    EXPECT(std::memcmp(&first, of_nothing, sizeof first) == 0);
    EXPECT(std::memcmp(&second, of_zero, sizeof second) == 0);
}

void TestChainsDependOnAllThatPrecedes() {
    const ChainHasher hasher(HashKey{1});
    const std::vector<std::int32_t> tokens{1, 2, 3, 4};
    const std::vector<std::uint8_t> salt{7};
    const Hash128 plain = hasher.Seed({}, 0);
    EXPECT(plain != hasher.Seed(salt, 0));
    EXPECT(plain != hasher.Seed({}, 1));
    EXPECT(hasher.Next(plain, tokens) != hasher.Next(hasher.Seed(salt, 0), tokens));
    EXPECT(hasher.Next(plain, tokens) == ChainHasher(HashKey{1}).Next(plain, tokens));
    EXPECT(hasher.Next(plain, tokens) != ChainHasher(HashKey{2}).Next(plain, tokens));
}

// Crowded keys, so that probing runs into one another; held to a std::map.
void TestIndexAgainstMap() {
    constexpr std::int32_t kNumBlocks = 64;
    std::vector<Hash128> keys(kNumBlocks);
    const auto key_of = [&](std::int32_t block) -> const Hash128& {
        return keys[static_cast<std::size_t>(block)];
    };
    PrefixIndex index(kNumBlocks);
    std::map<std::uint64_t, std::int32_t> expected;
    std::mt19937 random(1);
    std::vector<std::int32_t> idle(kNumBlocks);
    for (std::int32_t i = 0; i < kNumBlocks; ++i) idle[static_cast<std::size_t>(i)] = i;
    for (int round = 0; round < 20'000; ++round) {
        const std::uint64_t name = random() % 96;
        const Hash128 key{name % 11, name};
        const auto known = expected.find(name);
        EXPECT(index.Find(key, key_of) ==
               (known == expected.end() ? PrefixIndex::kAbsent : known->second));
        if (known == expected.end() && !idle.empty()) {
            const std::int32_t block = idle.back();
            idle.pop_back();
            keys[static_cast<std::size_t>(block)] = key;
            index.Insert(key, block);
            expected[name] = block;
        } else if (known != expected.end()) {
            index.Erase(key, known->second, key_of);
            idle.push_back(known->second);
            expected.erase(known);
        }
    }
}

void TestPromisesAreKept() {
    EventLog events(8);
    DevicePool pool({.num_blocks = 4, .block_tokens = 2, .group = 0, .keeps_tokens = true},
                    &events);
    auto promise = pool.TryReserve(3);
    EXPECT(promise.has_value());
    EXPECT(!pool.TryReserve(2).has_value());
    EXPECT(pool.num_unpromised() == 1);
    {
        const DeviceExclusive block = pool.Claim(pool.Take(*promise));
        EXPECT(pool.num_free() == 3);
        EXPECT(promise->num_blocks() == 2);
    }
    EXPECT(pool.num_free() == 4);
    promise.reset();
    EXPECT(pool.num_unpromised() == 4);
}

void TestEvictsTheLeastRecentlyUsed() {
    EventLog events(8);
    DevicePool pool({.num_blocks = 2, .block_tokens = 2, .group = 0, .keeps_tokens = true},
                    &events);
    const std::vector<std::int32_t> tokens{1, 2};
    const Hash128 older{1, 1};
    const Hash128 newer{2, 2};
    for (const Hash128& key : {older, newer}) {
        auto promise = pool.TryReserve(1);
        const DeviceShared shared =
            pool.Publish(pool.Claim(pool.Take(*promise)), {.key = key,
                                                           .parent_key = {},
                                                           .parent = DevicePool::kNone,
                                                           .seed = 1,
                                                           .token_ids = tokens});
    }
    EXPECT(pool.num_cached() == 2);
    {
        const auto touched =
            pool.TryShare(pool.Find(older));  // used again: `newer` is the older use now
        EXPECT(touched.has_value());
    }
    auto promise = pool.TryReserve(1);
    const DeviceExclusive taken = pool.Claim(pool.Take(*promise));
    EXPECT(pool.Find(older) != PrefixIndex::kAbsent);
    EXPECT(pool.Find(newer) == PrefixIndex::kAbsent);
    EXPECT(pool.WasEvicted(newer));
    EXPECT(!pool.WasEvicted(older));
    EXPECT(events.next_sequence() == 3);
    EXPECT(events.at(2).kind == KvEventKind::kEvicted);
}

}  // namespace
}  // namespace tokenlight::control

int main() {
    using namespace tokenlight::control;
    TestHashAgainstPublishedVectors();
    TestChainsDependOnAllThatPrecedes();
    TestIndexAgainstMap();
    TestPromisesAreKept();
    TestEvictsTheLeastRecentlyUsed();
    if (num_failures == 0) std::printf("ok\n");
    return num_failures == 0 ? 0 : 1;
}
