// SPDX-License-Identifier: Apache-2.0
// What CUDA sources take from their prelude and from the language, on a CPU: threads are contexts
// that take turns, those of a cluster together, so that a source's steps are made in a fixed order.
// A product of a tensor core adds in the order of its sixteen terms, as no device promises to:
// equal bits here say that two kernels give each product the same terms in the same places.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

using std::max;
using std::min;
typedef uint16_t bf16;
typedef uint32_t u32;
typedef uint64_t u64;

#define DEVICE inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define FULL_WARP 0xffffffffu

struct uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};
struct int3 {
    int x, y, z;
};
struct int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

constexpr float kLog2e = 1.4426950408889634f;

// ---- threads that take turns ----

namespace on_cpu {

struct Dim {
    int x = 0, y = 0;
};
struct Meeting {  // a barrier: how many came, and how often it was over
    int came = 0;
    u64 round = 0;
};
struct Block;
struct Thread {
    Dim at;
    Block* block;
    jmp_buf place;
    std::unique_ptr<char[]> stack;
    bool has_begun, has_ended;
};
constexpr int kMostReadsAhead = 64;  // of a lane, before the others of its warp
struct Reads {  // of shared memory: where the lanes' next reads are, in the order of each lane
    u32 at[kMostReadsAhead][32];
    int which[kMostReadsAhead], num_known[kMostReadsAhead] = {}, num_of_lane[32] = {};
};
struct Warp {
    Meeting meeting;
    u64 told[32][16];
    Reads reads;
};
struct Block {
    Dim at;
    u32 rank;
    std::vector<unsigned char> memory;
    std::vector<Warp> warps;
    Meeting whole, some[16];
    int num_running;
};
struct Cluster {
    std::vector<Block> blocks;
    int num_begun = 0;  // threads that began to meet, or ended
};

constexpr size_t kStackBytes = 128 << 10;
inline Cluster* cluster;
inline Thread* self;
inline Dim grid;
inline int num_threads;
inline jmp_buf scheduler;
inline u64 num_steps;  // since something was last done: waiting for ever is a fault
inline void (*body)();

inline void Yield() {
    if (++num_steps > 40000000) std::fputs("threads wait for each other\n", stderr), std::abort();
    if (!_setjmp(self->place)) _longjmp(scheduler, 1);
}
inline void Done() { num_steps = 0; }
inline void Meet(Meeting& at, int of) {
    const u64 round = at.round;
    if (++at.came == of) {
        at.came = 0, ++at.round;
        Done();
        return;
    }
    while (at.round == round) Yield();
}
inline void Begin() {
    body();
    self->has_ended = true;
    ++cluster->num_begun;
    --self->block->num_running;
    Done();
    _longjmp(scheduler, 1);
}

// What the kernel ahead writes: NaN until it has ended, and it ends as late as it can.
struct Ahead {
    unsigned char* at;
    std::vector<unsigned char> written;
};
inline std::vector<Ahead> ahead;
inline bool is_ahead_running;
inline void BeginAhead() {
    is_ahead_running = !ahead.empty();
    for (const Ahead& each : ahead) std::memset(each.at, 0xff, each.written.size());
}
inline void EndAhead() {
    if (!is_ahead_running) return;
    for (const Ahead& each : ahead)
        std::memcpy(each.at, each.written.data(), each.written.size());
    is_ahead_running = false;
    Done();
}

// Runs a cluster's blocks until all threads have ended.
inline void Run(Cluster& of) {
    BeginAhead();
    static std::vector<Thread> threads;  // of all runs: their stacks are kept
    cluster = &of;
    const size_t num = of.blocks.size() * num_threads;
    if (threads.size() < num) threads.resize(num);
    for (size_t i = 0; i < threads.size(); ++i) {
        Thread& one = threads[i];
        one.at.x = i % num_threads;
        one.block = i < num ? &of.blocks[i / num_threads] : nullptr;
        one.has_begun = false;
        one.has_ended = i >= num;
        if (!one.stack) one.stack.reset(new char[kStackBytes]);
    }
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_size = kStackBytes;
    start.uc_link = nullptr;
    for (bool any = true; any;) {
        any = false;
        for (Thread& one : threads) {
            if (one.has_ended) continue;
            any = true;
            self = &one;
            if (_setjmp(scheduler)) continue;
            if (one.has_begun) _longjmp(one.place, 1);
            one.has_begun = true;
            start.uc_stack.ss_sp = one.stack.get();
            makecontext(&start, Begin, 0);
            setcontext(&start);
        }
    }
    EndAhead();
}

inline unsigned char* Memory() { return self->block->memory.data(); }
inline Warp& OwnWarp() { return self->block->warps[self->at.x / 32]; }
// What each lane of the warp tells.
template <typename T, typename Read>
auto Among(const T& own, Read read) {
    Warp& warp = OwnWarp();
    static_assert(sizeof(T) <= sizeof(warp.told[0]));
    std::memcpy(warp.told[self->at.x % 32], &own, sizeof(T));
    Meet(warp.meeting, 32);
    auto answer = read([&](int lane) {
        T of_lane;
        std::memcpy((void*)&of_lane, warp.told[lane], sizeof(T));
        return of_lane;
    });
    Meet(warp.meeting, 32);
    return answer;
}
inline int Lane() { return self->at.x % 32; }
inline unsigned char* At(u32 address) {
    return cluster->blocks[address >> 20].memory.data() + (address & 0xfffff);
}

}  // namespace on_cpu

// From now on each launch finds these bytes written by the kernel ahead; of none, nothing.
extern "C" void written_ahead(void* at, size_t num_bytes) {
    if (!at) return on_cpu::ahead.clear();
    const auto* bytes = (const unsigned char*)at;
    on_cpu::ahead.push_back({(unsigned char*)at, {bytes, bytes + num_bytes}});
}

namespace on_cpu {

inline int most_at_a_bank;  // words of a bank that lanes have wanted at once

// A read of shared memory by a warp: a quarter of its lanes at once where each reads sixteen bytes,
// half of them where eight.
inline void CountBanks(const u32 (&at)[32], int num_bytes) {
    const int lanes = 128 / num_bytes;
    for (int first = 0; first < 32; first += lanes) {
        std::vector<u32> words[32];
        for (int i = first; i < first + lanes; ++i)
            for (u32 word = at[i] / 4; word < (at[i] + num_bytes) / 4; ++word) {
                auto& of_bank = words[word % 32];
                if (std::find(of_bank.begin(), of_bank.end(), word) == of_bank.end())
                    of_bank.push_back(word);
            }
        for (const auto& of_bank : words) most_at_a_bank = max(most_at_a_bank, (int)of_bank.size());
    }
}

// What all lanes of a warp read, in one order.
template <typename T>
T Read(const void* p) {
    Reads& reads = OwnWarp().reads;
    int& own = reads.num_of_lane[Lane()];
    const int slot = own % kMostReadsAhead;
    if (reads.num_known[slot] == 0) reads.which[slot] = own;
    if (reads.which[slot] != own) std::fputs("a lane reads too far ahead\n", stderr), std::abort();
    ++own;
    reads.at[slot][Lane()] = (const unsigned char*)p - Memory();
    if (++reads.num_known[slot] == 32) {
        CountBanks(reads.at[slot], sizeof(T));
        reads.num_known[slot] = 0;
    }
    return *(const T*)p;
}

}  // namespace on_cpu

extern "C" int most_at_a_bank() { return std::exchange(on_cpu::most_at_a_bank, 0); }

#define threadIdx (on_cpu::self->at)
#define blockIdx (on_cpu::self->block->at)
#define gridDim (on_cpu::grid)

// ---- the language ----

template <typename T>
T __shfl_sync(u32, T x, int from, int width = 32) {
    const int first = on_cpu::Lane() & -width;
    return on_cpu::Among(x, [&](auto told) { return told(first + (from & (width - 1))); });
}
template <typename T>
T __shfl_xor_sync(u32, T x, int mask) {
    return on_cpu::Among(x, [&](auto told) { return told(on_cpu::Lane() ^ mask); });
}
template <typename T>
T __shfl_up_sync(u32, T x, int step) {
    return on_cpu::Among(x, [&](auto told) { return told(max(on_cpu::Lane() - step, 0)); });
}
inline u32 __ballot_sync(u32, bool x) {
    return on_cpu::Among(x, [](auto told) {
        u32 all = 0;
        for (int i = 0; i < 32; ++i) all |= (u32)told(i) << i;
        return all;
    });
}
inline bool __any_sync(u32, bool x) { return __ballot_sync(FULL_WARP, x) != 0; }
inline void __syncwarp() { on_cpu::Meet(on_cpu::OwnWarp().meeting, 32); }
inline void __syncthreads() {
    on_cpu::Meet(on_cpu::self->block->whole, on_cpu::self->block->num_running);
}
inline int atomicAdd(int* to, int x) { return std::exchange(*to, *to + x); }
template <typename T>
T __ldcg(const T* p) {
    return *p;
}
inline int __popc(u32 x) { return __builtin_popcount(x); }
inline int __ffs(u32 x) { return __builtin_ffs(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __int_as_float(int x) {
    float y;
    std::memcpy(&y, &x, 4);
    return y;
}
inline u32 __float_as_uint(float x) {
    u32 y;
    std::memcpy(&y, &x, 4);
    return y;
}
inline float __uint_as_float(u32 x) { return __int_as_float((int)x); }
inline u32 __byte_perm(u32 x, u32 y, u32 choice) {
    const u64 bytes = (u64)y << 32 | x;
    u32 out = 0;
    for (int i = 0; i < 4; ++i) out |= (u32)(bytes >> 8 * (choice >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

// ---- the prelude ----

inline void LetNextStart() {}
inline void WaitForInputs() {
    // Until all threads wait, for this or for each other.
    const u64 rounds = 2 * on_cpu::cluster->blocks.size() * on_cpu::num_threads;
    while (on_cpu::is_ahead_running && on_cpu::num_steps < rounds) on_cpu::Yield();
    on_cpu::EndAhead();
}
inline uint4 LoadOnce(const void* p) { return *(const uint4*)p; }
inline uint4 LoadShared16(const void* p) { return *(const uint4*)p; }
inline u32 SharedAddress(const void* p) {
    const size_t at = (const unsigned char*)p - on_cpu::Memory();
    if (at >= on_cpu::self->block->memory.size()) std::abort();
    return on_cpu::self->block->rank << 20 | (u32)at;
}
template <int kNumber, int kNumThreads>
void SyncSome() {
    on_cpu::Meet(on_cpu::self->block->some[kNumber], kNumThreads);
}
inline int TakeTicket(int* count) { return atomicAdd(count, 1); }
inline int TakeNumber(int* count) { return atomicAdd(count, 1); }

// A barrier's 64 bits: bytes on their way, arrivals awaited, arrivals of a phase, the phase's
// parity.
struct Bits {
    int32_t bytes;
    uint16_t awaited;
    uint16_t arrivals : 15, parity : 1;
};
static_assert(sizeof(Bits) == sizeof(u64));
inline void Settle(u64* barrier) {
    Bits& bits = *(Bits*)barrier;
    if (bits.awaited || bits.bytes) return;
    bits.awaited = bits.arrivals;
    bits.parity ^= 1;
    on_cpu::Done();
}
inline void InitBarrier(u64* barrier, u32 arrivals) {
    *(Bits*)barrier = {0, (uint16_t)arrivals, (uint16_t)arrivals, 0};
}
inline void PublishBarriers() {}
inline void Arrive(u64* barrier) {
    --((Bits*)barrier)->awaited;
    Settle(barrier);
}
inline void ArriveAfter(u64* barrier, u32) { Arrive(barrier); }
inline void ArriveAndExpect(u64* barrier, u32 bytes) {
    ((Bits*)barrier)->bytes += bytes;
    Arrive(barrier);
}
inline void Complete(u64* barrier, u32 bytes) {
    ((Bits*)barrier)->bytes -= bytes;
    Settle(barrier);
}
inline void WaitBarrier(u64* barrier, u32 parity) {
    while (((Bits*)barrier)->parity == parity) on_cpu::Yield();
}
inline u32 largest_copy;
extern "C" u32 largest_copy_so_far() { return std::exchange(largest_copy, 0); }
inline void CopyBulk(void* to, const void* from, u32 bytes, u64* barrier) {
    if ((u64)to % 16 || (u64)from % 16 || bytes % 16) std::abort();
    SharedAddress((unsigned char*)to + bytes - 1);
    largest_copy = max(largest_copy, bytes);
    std::memcpy(to, from, bytes);
    Complete(barrier, bytes);
}
inline void CopyBulkOnce(void* to, const void* from, u32 bytes, u64* barrier) {
    CopyBulk(to, from, bytes, barrier);
}
inline u32 Rank() { return on_cpu::self->block->rank; }
inline u32 Remote(const void* p, u32 rank) { return rank << 20 | (SharedAddress(p) & 0xfffff); }
inline void BeginToMeet() { ++on_cpu::cluster->num_begun, on_cpu::Done(); }
inline void MeetCluster() {
    const int all = on_cpu::cluster->blocks.size() * on_cpu::num_threads;
    while (on_cpu::cluster->num_begun < all) on_cpu::Yield();
}
template <typename T>
void Send(u32 to, T v, u32 barrier) {
    if (to % sizeof(T)) std::abort();
    *(T*)on_cpu::At(to) = v;
    Complete((u64*)on_cpu::At(barrier), sizeof(T));
}

inline float Widen(bf16 x) { return __uint_as_float((u32)x << 16); }
inline u32 Rounded(float x) {
    const u32 bits = __float_as_uint(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline u32 Pack(float low, float high) { return Rounded(low) | Rounded(high) << 16; }
inline bool keeps_low_halves = false;
// What is kept of a result: bfloat16 as on a device, or the half that rounding to it drops.
inline u32 PackResult(float low, float high) {
    if (!keeps_low_halves) return Pack(low, high);
    return (__float_as_uint(low) & 0xffff) | __float_as_uint(high) << 16;
}
inline float Exp2(float x) { return std::exp2(x); }
inline void Mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    struct Told {
        u32 a[4], b[2];
    };
    const int g = on_cpu::Lane() / 4, t = on_cpu::Lane() % 4;
    on_cpu::Among(Told{{a0, a1, a2, a3}, {b0, b1}}, [&](auto told) {
        for (int k = 0; k < 16; ++k) {
            const int of = k % 8 / 2, shift = k % 2 * 16;
            const Told row = told(4 * g + of);
            for (int j = 0; j < 4; ++j) {
                const Told column = told(4 * (2 * t + j % 2) + of);
                d[j] += Widen((bf16)(row.a[j / 2 + 2 * (k / 8)] >> shift)) *
                        Widen((bf16)(column.b[k / 8] >> shift));
            }
        }
        return 0;
    });
}
inline u32 Transpose8x8(u32 pair) {
    const int g = on_cpu::Lane() / 4, t = on_cpu::Lane() % 4;
    return on_cpu::Among(pair, [&](auto told) {
        const int shift = g % 2 * 16;
        const u32 low = told(4 * (2 * t) + g / 2), high = told(4 * (2 * t + 1) + g / 2);
        return (low >> shift & 0xffff) | (high >> shift & 0xffff) << 16;
    });
}
