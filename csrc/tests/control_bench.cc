// SPDX-License-Identifier: Apache-2.0
// What the control plane costs by itself; benchmarks/control.py runs this, plain or under
// callgrind.
//
//   control_bench steps CONTEXT_TOKENS NUM_REQUESTS NUM_BLOCKED NUM_STEPS   allocations per step
//   control_bench evict NUM_BLOCKS NUM_EVICTIONS                           microseconds each
//   control_bench admit                                                    milliseconds; and over
//   hashing alone control_bench bytes NUM_BLOCKS                                         bytes per
//   block
//
// Under callgrind, --toggle-collect='*Measured*' counts the instructions of the measured part
// alone.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "control/scheduler.h"

namespace {

std::int64_t num_allocations = 0;
std::int64_t live_bytes = 0;

void Free(void* memory) {
    if (memory != nullptr) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
}

}  // namespace

void* operator new(std::size_t num_bytes) {
    ++num_allocations;
    void* memory = std::malloc(num_bytes);
    if (memory == nullptr) throw std::bad_alloc();
    live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    return memory;
}
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
    ++num_allocations;
    const auto step = static_cast<std::size_t>(alignment);
    void* memory = std::aligned_alloc(step, (num_bytes + step - 1) / step * step);
    if (memory == nullptr) throw std::bad_alloc();
    live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    return memory;
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }

namespace tokenlight::control {
namespace {

constexpr std::int32_t kBlockTokens = 64;
constexpr std::int32_t kMaxStepTokens = 8192;
using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Config MakeConfig(std::int32_t num_blocks, std::int32_t num_requests,
                  std::int32_t max_model_tokens) {
    return {.groups = {{GroupKind::kFull, num_blocks, 0}},
            .block_tokens = kBlockTokens,
            .max_num_requests = num_requests,
            .max_step_tokens = kMaxStepTokens,
            .max_model_tokens = max_model_tokens,
            .prefix_reuse = true,
            .hash_key = {1, 2, 3},
            .overlap = 0,
            .output_margin_tokens = 64,
            .max_preemptions = 3,
            .min_copy_tokens = 0,
            .max_events = 0,
            .num_host_blocks = 0};
}

// Different for each `salt`, spread over a vocabulary.
std::vector<std::int32_t> Prompt(std::int32_t num_tokens, std::uint32_t salt) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(num_tokens));
    std::uint32_t state = salt * 2654435761U + 1;
    for (std::int32_t& token : tokens) {
        state = state * 1664525U + 1013904223U;
        token = static_cast<std::int32_t>((state >> 8) % 150'000);
    }
    return tokens;
}

void Submit(Scheduler& scheduler, std::int64_t id, const std::vector<std::int32_t>& prompt,
            std::int32_t max_new_tokens) {
    Submission submission;
    submission.id = RequestId{id};
    submission.prompt_token_ids = prompt;
    submission.max_new_tokens = max_new_tokens;
    if (scheduler.Submit(submission) != Fault::kNone) std::abort();
}

// Plans and commits one step, every sampled token the same. False when there was nothing to plan.
bool Step(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out) {
    static std::vector<std::int32_t> sampled;
    StepGuard guard = scheduler.Plan(0, plan);
    if (!guard) return false;
    sampled.assign(static_cast<std::size_t>(plan.num_sampled()), 7);
    out.deltas.clear();
    out.token_ids.clear();
    scheduler.Commit(std::move(guard), {sampled, {}}, out);
    return true;
}

__attribute__((noinline)) void MeasuredSteps(Scheduler& scheduler, StepPlan& plan, DeltaBatch& out,
                                             int num_steps) {
    for (int i = 0; i < num_steps; ++i) Step(scheduler, plan, out);
}

void BenchSteps(std::int32_t context_tokens, std::int32_t num_requests, std::int32_t num_blocked,
                int num_steps) {
    // Room for the requests that run and their output, and for no other.
    constexpr std::int32_t kOutputTokens = 1024;
    const std::int32_t num_blocks =
        num_requests * ((context_tokens + kOutputTokens) / kBlockTokens + 1);
    const std::int32_t max_model_tokens =
        num_blocked > 0 ? num_blocks * kBlockTokens : context_tokens + kOutputTokens;
    Scheduler scheduler(MakeConfig(num_blocks, num_requests + num_blocked, max_model_tokens));
    StepPlan plan;
    DeltaBatch out;
    for (std::int32_t i = 0; i < num_requests; ++i) {
        Submit(scheduler, i, Prompt(context_tokens, static_cast<std::uint32_t>(i)), kOutputTokens);
    }
    do {
        Step(scheduler, plan, out);
    } while (plan.num_sampled() < num_requests || plan.num_tokens() > num_requests);
    const std::int32_t too_much = (scheduler.groups()[0].pool->num_unpromised() + 1) * kBlockTokens;
    for (std::int32_t i = 0; i < num_blocked; ++i) {
        Submit(scheduler, num_requests + i, Prompt(too_much, static_cast<std::uint32_t>(1000 + i)),
               1);
    }
    for (int i = 0; i < 70; ++i)
        Step(scheduler, plan, out);  // buffers reach their size within a block
    const std::int64_t before = num_allocations;
    const auto start = Clock::now();
    MeasuredSteps(scheduler, plan, out, num_steps);
    const double us = MicrosecondsSince(start) / num_steps;
    std::printf("{\"step_us\": %.3f, \"allocations_per_step\": %.6f, \"num_waiting\": %d}\n", us,
                static_cast<double>(num_allocations - before) / num_steps,
                scheduler.stats().num_waiting);
}

// A pool of which every block is cached.
std::unique_ptr<DevicePool> FullPool(std::int32_t num_blocks, EventLog& events) {
    auto pool = std::make_unique<DevicePool>(PoolConfig{.num_blocks = num_blocks,
                                                        .block_tokens = kBlockTokens,
                                                        .group = 0,
                                                        .keeps_tokens = true},
                                             &events);
    const ChainHasher hasher(HashKey{1});
    std::vector<std::int32_t> tokens = Prompt(kBlockTokens, 3);
    Hash128 parent;
    std::int32_t parent_block = DevicePool::kNone;
    std::optional<Reservation<Tier::kDevice>> promise = pool->TryReserve(num_blocks);
    std::vector<DeviceShared> held;
    for (std::int32_t i = 0; i < num_blocks; ++i) {
        tokens[0] = i;
        const Hash128 key = hasher.Next(parent, tokens);
        held.push_back(pool->Publish(pool->Claim(pool->Take(*promise)), {.key = key,
                                                                         .parent_key = parent,
                                                                         .parent = parent_block,
                                                                         .seed = 1,
                                                                         .token_ids = tokens}));
        const bool starts_anew = i % 256 == 255;  // prompts of 16K tokens
        parent = starts_anew ? Hash128{} : key;
        parent_block = starts_anew ? DevicePool::kNone : Raw(held.back().id());
    }
    while (!held.empty()) held.pop_back();
    return pool;
}

__attribute__((noinline)) void MeasuredEvictions(DevicePool& pool,
                                                 Reservation<Tier::kDevice>& promise,
                                                 std::vector<DeviceExclusive>& taken,
                                                 std::int32_t num_evictions) {
    for (std::int32_t i = 0; i < num_evictions; ++i)
        taken.push_back(pool.Claim(pool.Take(promise)));
}

void BenchEvict(std::int32_t num_blocks, std::int32_t num_evictions) {
    EventLog events(0);
    const auto pool = FullPool(num_blocks, events);
    std::optional<Reservation<Tier::kDevice>> promise = pool->TryReserve(num_evictions);
    std::vector<DeviceExclusive> taken;
    taken.reserve(static_cast<std::size_t>(num_evictions));
    const auto start = Clock::now();
    MeasuredEvictions(*pool, *promise, taken, num_evictions);
    std::printf("{\"evict_us\": %.4f}\n", MicrosecondsSince(start) / num_evictions);
}

// A prompt of 100K tokens of which 99K are cached, in an index of a million blocks; a different one
// each time.
void BenchAdmit() {
    constexpr std::int32_t kNumBlocks = 1'000'000;
    constexpr std::int32_t kPromptTokens = 100'000;
    constexpr std::int32_t kCachedTokens = 99'008;
    constexpr std::int64_t kNumRounds = 25;
    Scheduler scheduler(MakeConfig(kNumBlocks, 4, kPromptTokens + 64));
    const ChainHasher hasher(scheduler.config().hash_key);
    StepPlan plan;
    DeltaBatch out;
    std::int64_t id = 0;
    while (scheduler.groups()[0].pool->num_cached() < kNumBlocks - 3200) {
        Submit(scheduler, id, Prompt(kPromptTokens, static_cast<std::uint32_t>(id)), 1);
        while (Step(scheduler, plan, out)) {
        }
        ++id;
    }
    const std::int64_t num_prompts = id;
    std::vector<double> admit_ms;
    std::vector<double> hash_ms;
    for (std::int64_t round = 0; round < kNumRounds; ++round, ++id) {
        std::vector<std::int32_t> prompt =
            Prompt(kPromptTokens, static_cast<std::uint32_t>(round * (num_prompts / kNumRounds)));
        std::fill(prompt.begin() + kCachedTokens, prompt.end(), 5);
        auto start = Clock::now();
        Submit(scheduler, id, prompt, 1);
        StepGuard guard = scheduler.Plan(0, plan);
        admit_ms.push_back(MicrosecondsSince(start) / 1000);
        if (scheduler.Explain(RequestId{id})->num_cached_tokens != kCachedTokens) std::abort();
        const std::vector<std::int32_t> sampled(1, 7);
        if (guard) scheduler.Commit(std::move(guard), {sampled, {}}, out);

        start = Clock::now();
        Hash128 key;
        for (std::size_t at = 0; at + kBlockTokens <= prompt.size(); at += kBlockTokens) {
            key = hasher.Next(key, std::span(prompt).subspan(at, kBlockTokens));
        }
        hash_ms.push_back(MicrosecondsSince(start) / 1000 + (key.low == 0 ? 1e9 : 0));
    }
    std::ranges::sort(admit_ms);
    std::ranges::sort(hash_ms);
    std::printf("{\"admit_ms\": %.4f, \"hash_ms\": %.4f}\n", admit_ms[kNumRounds / 2],
                hash_ms[kNumRounds / 2]);
}

void BenchBytes(std::int32_t num_blocks) {
    const std::int64_t before = live_bytes;
    EventLog events(0);
    const auto pool = FullPool(num_blocks, events);
    std::printf("{\"bytes_per_block\": %.1f}\n",
                static_cast<double>(live_bytes - before) / num_blocks);
}

int Main(int argc, char** argv) {
    const auto number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
    const auto is = [&](const char* mode) { return argc > 1 && std::strcmp(argv[1], mode) == 0; };
    if (is("steps")) {
        BenchSteps(number(2), number(3), number(4), number(5));
    } else if (is("evict")) {
        BenchEvict(number(2), number(3));
    } else if (is("admit")) {
        BenchAdmit();
    } else if (is("bytes")) {
        BenchBytes(number(2));
    } else {
        std::fprintf(stderr, "usage: control_bench steps|evict|admit|bytes ...\n");
        return 2;
    }
    return 0;
}

}  // namespace
}  // namespace tokenlight::control

int main(int argc, char** argv) { return tokenlight::control::Main(argc, argv); }
