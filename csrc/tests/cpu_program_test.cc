// SPDX-License-Identifier: Apache-2.0
// A step program: places are found when it runs, and its instructions give what calls of the
// kernels give.
#include <stdexcept>

#include "cpu/activation.h"
#include "cpu/half.h"
#include "cpu/linear.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/rope_write_kv.h"
#include "cpu/row_ops.h"
#include "cpu/scratch.h"
#include "cpu/step_program.h"
#include "tests/cpu_check.h"

namespace tokenlight::cpu {
namespace {

constexpr std::int64_t kHeads = 3, kKvHeads = 1, kDim = 20, kBlockTokens = 4, kBlocks = 8;
constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim;

// What a step brings: one request, whose blocks are in reverse.
struct Step {
    std::vector<std::int32_t> starts, slots = {0}, lens, table, positions;
    std::vector<float> qkv, angles;
    PagedBatch batch;

    explicit Step(std::int32_t num_tokens) : starts{0, num_tokens}, lens{num_tokens} {
        for (int b = kBlocks - 1; b >= 0; --b) table.push_back(b);
        for (int t = 0; t < num_tokens; ++t) positions.push_back(t);
        qkv = RandomFloats(static_cast<std::size_t>(num_tokens * kWidth), 1);
        angles = RandomFloats(static_cast<std::size_t>(num_tokens * kDim), 2);
        batch = {starts.data(), table.data(), slots.data(), 1,       1,
                 kBlocks,       kBlocks,      num_tokens,   kBlocks, kBlockTokens};
    }
};

// Elements of `bytes` each.
std::vector<std::uint8_t> MakeCache(std::int64_t bytes) {
    return std::vector<std::uint8_t>(
        static_cast<std::size_t>(kBlocks * kKvHeads * kBlockTokens * (kDim + 4) * bytes), 0xFF);
}

WriteKvArgs KvOf(const Step& step, float* qkv, void* k_cache, void* v_cache, FloatType type) {
    return {qkv + kHeads * kDim,
            qkv + (kHeads + kKvHeads) * kDim,
            k_cache,
            v_cache,
            step.positions.data(),
            step.batch,
            type,
            kKvHeads,
            kDim,
            kWidth,
            kWidth};
}

// The fused kernel writes what its three parts write, in every type of cache.
void TestRopeWriteKv(FloatType type) {
    Step step(11);
    ThreadPool& pool = ThreadPool::Get();
    const std::vector<float> gain = RandomFloats(kDim, 3);
    auto apart = step.qkv, fused = step.qkv;
    auto k_apart = MakeCache(4), v_apart = MakeCache(4), k_fused = MakeCache(4),
         v_fused = MakeCache(4);
    float* q = apart.data();
    for (std::int64_t t = 0; t < step.batch.num_tokens; ++t) {
        float* heads = q + t * kWidth;
        std::vector<float> normed(static_cast<std::size_t>((kHeads + kKvHeads) * kDim));
        pool.Run(RmsNorm,
                 RmsNormArgs{normed.data(), heads, gain.data(), kHeads + kKvHeads, 1, kDim, kDim, 0,
                             1e-5F},
                 1);
        std::memcpy(heads, normed.data(), normed.size() * sizeof(float));
    }
    pool.Run(Rope,
             RopeArgs{q, q + kHeads * kDim, step.angles.data(), step.batch.num_tokens, kHeads,
                      kKvHeads, kDim, kDim, kWidth, kWidth},
             2);
    pool.Run(WriteKv, KvOf(step, q, k_apart.data(), v_apart.data(), type), 2);

    const WriteKvArgs kv = KvOf(step, fused.data(), k_fused.data(), v_fused.data(), type);
    CheckWriteKv(kv);
    pool.Run(RopeWriteKv,
             RopeWriteKvArgs{fused.data(), step.angles.data(), gain.data(), gain.data(), kv, kHeads,
                             kWidth, kDim, 1e-5F},
             2);
    CheckTrue(k_apart == k_fused && v_apart == v_fused, "rope_write_kv: the same cache");
    for (std::int64_t t = 0; t < step.batch.num_tokens; ++t) {
        CheckTrue(std::memcmp(q + t * kWidth, fused.data() + t * kWidth,
                              kHeads * kDim * sizeof(float)) == 0,
                  "rope_write_kv: the same queries");
    }
}

// add -> copy_rows over an arena, for steps of different sizes, and what is refused.
void TestProgram() {
    alignas(64) float arena[512];
    StepProgram program(reinterpret_cast<std::uintptr_t>(arena), 2, false);
    const Place x{Place::Base::kField, 0}, picked{Place::Base::kField, 1};
    const Place sum{Place::Base::kArena, 0}, out{Place::Base::kArena, 1024};
    const Count tokens{1, 0}, sampled{0, 1};
    program.Append([=](StepRun& run) {
        const AddArgs args{run.At<float>(sum),
                           run.At<const float>(x),
                           run.At<const float>(x),
                           run.Get(tokens),
                           5,
                           run.FieldAt(x).stride,
                           run.FieldAt(x).stride,
                           0.0F};
        ThreadPool::Get().Run(Add, args, 2);
    });
    program.Append([=](StepRun& run) {
        const CopyRowsArgs args{run.At<float>(out),
                                run.At<const float>(sum),
                                run.At<const std::int32_t>(picked),
                                run.Get(sampled),
                                run.Get(tokens),
                                5,
                                5,
                                5};
        CheckRows(args);
        ThreadPool::Get().Run(CopyRows, args, 2);
    });
    for (const std::int64_t num_tokens : {1, 20, 3}) {
        const auto values = RandomFloats(static_cast<std::size_t>(num_tokens * 7), 4);
        const std::int32_t last = static_cast<std::int32_t>(num_tokens) - 1;
        program.SetField(0, {reinterpret_cast<std::uintptr_t>(values.data()), num_tokens, 5, 7});
        program.SetField(1, {reinterpret_cast<std::uintptr_t>(&last), 1, 1, 1});
        program.Run(0, program.size(), num_tokens, 1);
        for (std::size_t i = 0; i < 5; ++i) {
            const float want = values[static_cast<std::size_t>(last * 7) + i];
            CheckClose(arena[256 + i], want + want, 0, "program", i);
        }
        const std::int32_t outside = last + 1;
        program.SetField(1, {reinterpret_cast<std::uintptr_t>(&outside), 1, 1, 1});
        bool is_refused = false;
        try {
            program.Run(0, program.size(), num_tokens, 1);
        } catch (const std::out_of_range&) {
            is_refused = true;
        }
        CheckTrue(is_refused, "program: a row outside is refused");
    }
}

// Attentions that are alike share their cuts; others do not.
void TestPlans() {
    Step step(11);
    const std::vector<Field> fields;
    StepRun run(nullptr, fields, 11, 1);
    AttentionArgs args{};
    args.kv_lens = step.lens.data();
    args.batch = step.batch;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.head_dim = kDim;
    const std::size_t all = run.PlanAttention(args, 1).plan.items.size();
    CheckTrue(run.PlanAttention(args, 1).plan.items.size() == all, "plans: one for both");
    args.window = 2;
    CheckTrue(run.PlanAttention(args, 1).like.window == 2, "plans: another for a window");
    args.batch.num_blocks = 1;
    bool is_refused = false;
    try {
        run.PlanAttention(args, 1);
    } catch (const std::out_of_range&) {
        is_refused = true;
    }
    CheckTrue(is_refused, "plans: a smaller pool is checked by itself");
}

void TestSums() {
    constexpr std::int64_t kRows = 19, kWide = 37;
    const auto x = RandomFloats(kRows * kWide, 5), residual = RandomFloats(kRows * kWide, 6);
    const auto gain = RandomFloats(kWide, 7);
    std::vector<float> sum(x.size()), out(x.size()), fused_sum(x.size()), fused(x.size());
    ThreadPool& pool = ThreadPool::Get();
    pool.Run(Add, AddArgs{sum.data(), x.data(), residual.data(), kRows, kWide, kWide, kWide, 0.0F},
             2);
    pool.Run(RmsNorm,
             RmsNormArgs{out.data(), sum.data(), gain.data(), kRows, 1, kWide, kWide, 0, 1e-6F}, 2);
    pool.Run(AddRmsNorm,
             AddRmsNormArgs{fused.data(), fused_sum.data(), x.data(), residual.data(), gain.data(),
                            kRows, kWide, kWide, kWide, 1e-6F},
             2);
    CheckTrue(sum == fused_sum && out == fused, "add_rms_norm: the bits of its parts");
}

void TestAll() {
    for (const FloatType type :
         {FloatType::kF32, FloatType::kF16, FloatType::kBf16, FloatType::kI8}) {
        TestRopeWriteKv(type);
    }
    TestProgram();
    TestPlans();
    TestSums();
}

}  // namespace
}  // namespace tokenlight::cpu

int main() {
    tokenlight::cpu::PoisonScratch(true);
    for (const int num_threads : {1, 3}) {
        tokenlight::cpu::ThreadPool::Get().SetNumThreads(num_threads);
        tokenlight::cpu::OnEachIsa(tokenlight::cpu::TestAll);
    }
    return 0;
}
