// SPDX-License-Identifier: Apache-2.0
// The compiled CPU kernels, called with addresses: a call costs a microsecond, not the five of an
// array protocol. The callers in tokenlight/kernels/ops/*/cpu.py own the arrays and have checked
// their shapes; indices in them are checked here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/cpu_call.h"
#include "cpu/activation.h"
#include "cpu/attention.h"
#include "cpu/embedding.h"
#include "cpu/isa.h"
#include "cpu/linear.h"
#include "cpu/pack.h"
#include "cpu/probe.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/sample.h"
#include "cpu/scratch.h"
#include "cpu/threads.h"
#include "cpu/write_kv.h"

namespace tokenlight::cpu {

void BindExpertOps(nb::module_& m);  // cpu_experts.cc

namespace {

void BindRowOps(nb::module_& m) {
    m.def(
        "rms_norm",
        [](Address out, Address x, Address weight, std::int64_t num_outer, std::int64_t num_inner,
           std::int64_t width, std::int64_t outer_stride, std::int64_t inner_stride, float eps) {
            const RmsNormArgs args{At<float>(out), At<const float>(x), At<const float>(weight),
                                   num_outer,      num_inner,          width,
                                   outer_stride,   inner_stride,       eps};
            RunOn(RmsNorm, args, num_outer * num_inner * width);
        },
        "out"_a, "x"_a, "weight"_a, "num_outer"_a, "num_inner"_a, "width"_a, "outer_stride"_a,
        "inner_stride"_a, "eps"_a);
    const auto activation = [&m](const char* name, void (*job)(const ActivationArgs&, Worker&)) {
        m.def(
            name,
            [job](Address out, Address x, std::int64_t num_rows, std::int64_t width,
                  std::int64_t x_stride, float cap) {
                const ActivationArgs args{At<float>(out), At<const float>(x), num_rows,
                                          width,          x_stride,           cap};
                RunOn(job, args, 4 * num_rows * width);
            },
            "out"_a, "x"_a, "num_rows"_a, "width"_a, "x_stride"_a, "cap"_a);
    };
    activation("silu_mul", SiluMul);
    activation("gelu_tanh_mul", GeluTanhMul);
    activation("softcap", Softcap);
    m.def(
        "rope",
        [](Address q, Address k, Address cos_sin, std::int64_t num_tokens, std::int64_t num_q_heads,
           std::int64_t num_k_heads, std::int64_t head_dim, std::int64_t rotated,
           std::int64_t q_stride, std::int64_t k_stride) {
            const RopeArgs args{At<float>(q), At<float>(k), At<const float>(cos_sin),
                                num_tokens,   num_q_heads,  num_k_heads,
                                head_dim,     rotated,      q_stride,
                                k_stride};
            RunOn(Rope, args, num_tokens * (num_q_heads + num_k_heads) * rotated);
        },
        "q"_a, "k"_a, "cos_sin"_a, "num_tokens"_a, "num_q_heads"_a, "num_k_heads"_a, "head_dim"_a,
        "rotated"_a, "q_stride"_a, "k_stride"_a);
}

void BindWeightOps(nb::module_& m) {
    nb::enum_<WeightFormat>(m, "WeightFormat")
        .value("f32", WeightFormat::kF32)
        .value("f16", WeightFormat::kF16)
        .value("bf16", WeightFormat::kBf16)
        .value("q4_0", WeightFormat::kQ4_0)
        .value("q4_1", WeightFormat::kQ4_1)
        .value("q5_0", WeightFormat::kQ5_0)
        .value("q5_1", WeightFormat::kQ5_1)
        .value("q8_0", WeightFormat::kQ8_0)
        .value("iq4_nl", WeightFormat::kIq4Nl)
        .value("mxfp4", WeightFormat::kMxfp4)
        .value("q2_k", WeightFormat::kQ2K)
        .value("q3_k", WeightFormat::kQ3K)
        .value("q4_k", WeightFormat::kQ4K)
        .value("q5_k", WeightFormat::kQ5K)
        .value("q6_k", WeightFormat::kQ6K);
    m.def(
        "linear",
        [](Address y, Address x, Address weight, Address bias, std::int64_t num_rows,
           std::int64_t n, std::int64_t k, std::int64_t x_stride, WeightFormat format) {
            LinearArgs args{At<float>(y),
                            At<const float>(x),
                            At<const void>(weight),
                            At<const float>(bias),
                            num_rows,
                            n,
                            k,
                            x_stride,
                            format,
                            nullptr};
            ThreadPool& pool = ThreadPool::Get();
            args.scratch = ThreadScratch(LinearScratchBytes(args, pool.num_threads()));
            const std::int64_t work = num_rows * n * k / 16;
            const Company company(work);
            Linear(args, pool, MaxWorkers(work));
        },
        "y"_a, "x"_a, "weight"_a, "bias"_a, "num_rows"_a, "n"_a, "k"_a, "x_stride"_a, "format"_a);
    m.def(
        "pack",
        [](Address out, Address rows, std::int64_t num_rows, std::int64_t num_blocks,
           WeightFormat format) {
            const PackArgs args{At<std::uint8_t>(out), At<const std::uint8_t* const>(rows),
                                num_rows, num_blocks, format};
            CheckPack(args);
            RunOn(Pack, args, num_rows * num_blocks * LayoutOf(format).Bytes() / 4);
        },
        "out"_a, "rows"_a, "num_rows"_a, "num_blocks"_a, "format"_a,
        "Quantized rows, each at an address of its own, to layout tile16.");
    m.def(
        "embedding",
        [](Address out, Address ids, Address table, std::int64_t num_ids, std::int64_t num_rows,
           std::int64_t width, WeightFormat format) {
            const EmbeddingArgs args{At<float>(out),
                                     At<const std::int32_t>(ids),
                                     At<const void>(table),
                                     num_ids,
                                     num_rows,
                                     width,
                                     format};
            CheckIds(args);
            RunOn(Embedding, args, 2 * num_ids * width);
        },
        "out"_a, "ids"_a, "table"_a, "num_ids"_a, "num_rows"_a, "width"_a, "format"_a);
}

void BindPagedOps(nb::module_& m) {
    nb::enum_<FloatType>(m, "FloatType")
        .value("f32", FloatType::kF32)
        .value("f16", FloatType::kF16)
        .value("bf16", FloatType::kBf16);
    nb::class_<PagedBatch>(m, "PagedBatch", "Addresses of a step's arrays, which the caller keeps.")
        .def(
            "__init__",
            [](PagedBatch* self, Address query_starts, Address block_table, Address slots,
               std::int64_t num_requests, std::int64_t num_slots, std::int64_t num_columns,
               std::int64_t table_stride, std::int64_t num_tokens, std::int64_t num_blocks,
               std::int64_t block_tokens) {
                new (self) PagedBatch{At<const std::int32_t>(query_starts),
                                      At<const std::int32_t>(block_table),
                                      At<const std::int32_t>(slots),
                                      num_requests,
                                      num_slots,
                                      num_columns,
                                      table_stride,
                                      num_tokens,
                                      num_blocks,
                                      block_tokens};
            },
            "query_starts"_a, "block_table"_a, "slots"_a, "num_requests"_a, "num_slots"_a,
            "num_columns"_a, "table_stride"_a, "num_tokens"_a, "num_blocks"_a, "block_tokens"_a);
    m.def(
        "write_kv",
        [](const PagedBatch& batch, Address k, Address v, Address k_cache, Address v_cache,
           Address positions, FloatType cache_type, std::int64_t num_heads, std::int64_t head_dim,
           std::int64_t k_stride, std::int64_t v_stride) {
            const WriteKvArgs args{At<const float>(k),
                                   At<const float>(v),
                                   At<void>(k_cache),
                                   At<void>(v_cache),
                                   At<const std::int32_t>(positions),
                                   batch,
                                   cache_type,
                                   num_heads,
                                   head_dim,
                                   k_stride,
                                   v_stride};
            CheckWriteKv(args);
            RunOn(WriteKv, args, 2 * batch.num_tokens * num_heads * head_dim);
        },
        "batch"_a, "k"_a, "v"_a, "k_cache"_a, "v_cache"_a, "positions"_a, "cache_type"_a,
        "num_heads"_a, "head_dim"_a, "k_stride"_a, "v_stride"_a);
    m.def(
        "paged_attention",
        [](const PagedBatch& batch, Address out, Address q, Address k_cache, Address v_cache,
           Address kv_lens, Address sinks, FloatType cache_type, std::int64_t num_heads,
           std::int64_t num_kv_heads, std::int64_t head_dim, std::int64_t q_stride,
           std::int64_t window, float scale, float softcap) {
            const AttentionArgs args{At<float>(out),
                                     At<const float>(q),
                                     At<const void>(k_cache),
                                     At<const void>(v_cache),
                                     At<const std::int32_t>(kv_lens),
                                     At<const float>(sinks),
                                     batch,
                                     cache_type,
                                     num_heads,
                                     num_kv_heads,
                                     head_dim,
                                     q_stride,
                                     window,
                                     scale,
                                     softcap};
            ThreadPool& pool = ThreadPool::Get();
            const int num_workers = pool.num_threads();
            const AttentionPlan plan = AttentionPlan::Make(args, num_workers);
            std::int64_t work = 0;
            for (const AttentionItem& item : plan.items) {
                work += std::int64_t{item.num_partitions} * item.num_queries;
            }
            work *= args.HeadsPerGroup() * head_dim * kPartitionTokens / 8;
            void* scratch = ThreadScratch(AttentionScratchBytes(args, plan, num_workers));
            const Company company(work);
            PagedAttention(PlannedAttention(args, plan, num_workers, scratch), pool,
                           MaxWorkers(work));
        },
        "batch"_a, "out"_a, "q"_a, "k_cache"_a, "v_cache"_a, "kv_lens"_a, "sinks"_a, "cache_type"_a,
        "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "q_stride"_a, "window"_a, "scale"_a,
        "softcap"_a);
}

void BindSample(nb::module_& m) {
    m.def(
        "sample",
        [](Address ids, Address logits, Address temperature, Address top_k, Address top_p,
           Address min_p, Address seeds, Address positions, std::int64_t num_rows,
           std::int64_t vocabulary, std::int64_t stride) {
            SampleArgs args{At<std::int32_t>(ids),
                            At<const float>(logits),
                            At<const float>(temperature),
                            At<const std::int32_t>(top_k),
                            At<const float>(top_p),
                            At<const float>(min_p),
                            At<const std::int64_t>(seeds),
                            At<const std::int32_t>(positions),
                            num_rows,
                            vocabulary,
                            stride,
                            nullptr};
            args.scratch = ThreadScratch(SampleScratchBytes(args, ThreadPool::Get().num_threads()));
            RunOn(Sample, args, num_rows * vocabulary);
        },
        "ids"_a, "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seeds"_a,
        "positions"_a, "num_rows"_a, "vocabulary"_a, "stride"_a);
}

void BindMachine(nb::module_& m) {
    m.def(
        "features",
        [] {
            std::vector<std::string> names;
            for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
                if (isa <= BestIsa()) names.emplace_back(IsaName(isa));
            }
            return names;
        },
        "Instruction sets that the kernels can use here, the best last.");
    m.def(
        "set_isa",
        [](const std::string& name) {
            for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
                if (name == IsaName(isa)) return SetActiveIsa(isa);
            }
            throw nb::value_error("the instruction sets are portable, avx2 and avx512");
        },
        "name"_a, "Use a lower instruction set than the best: for tests.");
    m.def("num_threads", [] { return ThreadPool::Get().num_threads(); });
    m.def(
        "set_num_threads", [](int count) { ThreadPool::Get().SetNumThreads(count); },
        "num_threads"_a);
    m.def("poison_scratch", &PoisonScratch, "poison"_a,
          "Fill scratch memory with NaN before each use: for tests.");
}

void BindProbes(nb::module_& m) {
    m.def(
        "probe_read",
        [](Address memory, std::int64_t num_bytes) {
            ThreadPool& pool = ThreadPool::Get();
            pool.Run(ReadAll, ReadProbe{At<const std::uint8_t>(memory), num_bytes},
                     pool.num_threads());
        },
        "memory"_a, "num_bytes"_a, "Read memory once, on all threads.");
    m.def(
        "probe_multiply",
        [](std::int64_t num_pieces, bool ints) {
            ThreadPool& pool = ThreadPool::Get();
            pool.Run(ints ? MultiplyInts : MultiplyFloats, PeakProbe{num_pieces},
                     pool.num_threads());
            return num_pieces * kProbeRounds * kProbeChains * (ints ? 128 : 32);
        },
        "num_pieces"_a, "ints"_a, "Multiply and add on all threads; returns how many operations.");
}

}  // namespace
}  // namespace tokenlight::cpu

NB_MODULE(_cpu, m) {
    using namespace tokenlight::cpu;
    BindMachine(m);
    BindRowOps(m);
    BindWeightOps(m);
    BindPagedOps(m);
    BindExpertOps(m);
    BindSample(m);
    BindProbes(m);
}
