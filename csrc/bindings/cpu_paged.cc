// SPDX-License-Identifier: Apache-2.0
// What reads or writes the paged cache. See cpu.cc.

#include <nanobind/nanobind.h>

#include <cstdint>

#include "bindings/cpu_call.h"
#include "cpu/attention.h"
#include "cpu/rope_write_kv.h"
#include "cpu/scratch.h"
#include "cpu/threads.h"
#include "cpu/write_kv.h"

namespace tokenlight::cpu {

void BindPagedOps(nb::module_& m) {
    nb::enum_<FloatType>(m, "FloatType")
        .value("f32", FloatType::kF32)
        .value("f16", FloatType::kF16)
        .value("bf16", FloatType::kBf16)
        .value("i8", FloatType::kI8);
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
        "rope_write_kv",
        [](const PagedBatch& batch, Address q, Address k, Address v, Address cos_sin,
           Address k_cache, Address v_cache, Address positions, Address q_weight, Address k_weight,
           FloatType cache_type, std::int64_t num_q_heads, std::int64_t num_heads,
           std::int64_t head_dim, std::int64_t rotated, std::int64_t q_stride,
           std::int64_t k_stride, std::int64_t v_stride, float eps) {
            const WriteKvArgs kv{At<const float>(k),
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
            CheckWriteKv(kv);
            const RopeWriteKvArgs args{At<float>(q),
                                       At<const float>(cos_sin),
                                       At<const float>(q_weight),
                                       At<const float>(k_weight),
                                       kv,
                                       num_q_heads,
                                       q_stride,
                                       rotated,
                                       eps};
            RunOn(RopeWriteKv, args,
                  2 * batch.num_tokens * (num_q_heads + 2 * num_heads) * head_dim);
        },
        "batch"_a, "q"_a, "k"_a, "v"_a, "cos_sin"_a, "k_cache"_a, "v_cache"_a, "positions"_a,
        "q_weight"_a, "k_weight"_a, "cache_type"_a, "num_q_heads"_a, "num_heads"_a, "head_dim"_a,
        "rotated"_a, "q_stride"_a, "k_stride"_a, "v_stride"_a, "eps"_a);
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

}  // namespace tokenlight::cpu
