// SPDX-License-Identifier: Apache-2.0
// Experts and latent attention.

#include "bindings/cpu_call.h"
#include "cpu/attention.h"
#include "cpu/head_linear.h"
#include "cpu/latent.h"
#include "cpu/moe.h"
#include "cpu/route.h"

namespace tokenlight::cpu {

void BindExpertOps(nb::module_& m);

void BindExpertOps(nb::module_& m) {
    m.def(
        "route",
        [](Address experts, Address weights, Address logits, Address bias, std::int64_t num_tokens,
           std::int64_t num_experts, std::int64_t logits_stride, std::int64_t top_k,
           std::int64_t num_groups, std::int64_t top_groups, std::int64_t group_best,
           bool is_sigmoid, bool renormalises, float scale) {
            RouteArgs args{At<std::int32_t>(experts),
                           At<float>(weights),
                           At<const float>(logits),
                           At<const float>(bias),
                           num_tokens,
                           num_experts,
                           logits_stride,
                           top_k,
                           num_groups,
                           top_groups,
                           group_best,
                           is_sigmoid,
                           renormalises,
                           scale,
                           nullptr};
            args.scratch = ThreadScratch(RouteScratchBytes(args, ThreadPool::Get().num_threads()));
            RunOn(Route, args, num_tokens * num_experts * (top_k + 4));
        },
        "experts"_a, "weights"_a, "logits"_a, "bias"_a, "num_tokens"_a, "num_experts"_a,
        "logits_stride"_a, "top_k"_a, "num_groups"_a, "top_groups"_a, "group_best"_a,
        "is_sigmoid"_a, "renormalises"_a, "scale"_a);
    m.def(
        "moe",
        [](Address out, Address x, Address experts, Address routing, Address gate_up, Address down,
           Address gate_up_bias, Address down_bias, std::int64_t num_tokens, std::int64_t dim,
           std::int64_t inner, std::int64_t num_experts, std::int64_t per_token,
           std::int64_t first_expert, std::int64_t x_stride, WeightFormat gate_up_format,
           WeightFormat down_format, float limit, float alpha, float shift) {
            const MoeArgs args{At<float>(out),
                               At<const float>(x),
                               At<const std::int32_t>(experts),
                               At<const float>(routing),
                               At<const void>(gate_up),
                               At<const void>(down),
                               At<const float>(gate_up_bias),
                               At<const float>(down_bias),
                               num_tokens,
                               dim,
                               inner,
                               num_experts,
                               per_token,
                               first_expert,
                               x_stride,
                               gate_up_format,
                               down_format,
                               limit,
                               alpha,
                               shift};
            const Company company(num_tokens * per_token * dim * inner * 3 / 16);
            MoeInPasses(args, ThreadPool::Get());
        },
        "out"_a, "x"_a, "experts"_a, "routing"_a, "gate_up"_a, "down"_a, "gate_up_bias"_a,
        "down_bias"_a, "num_tokens"_a, "dim"_a, "inner"_a, "num_experts"_a, "per_token"_a,
        "first_expert"_a, "x_stride"_a, "gate_up_format"_a, "down_format"_a, "limit"_a, "alpha"_a,
        "shift"_a);
    m.def(
        "head_linear",
        [](Address y, Address x, Address weight, std::int64_t num_rows, std::int64_t num_heads,
           std::int64_t n, std::int64_t k, std::int64_t x_stride, WeightFormat format) {
            HeadLinearArgs args{At<float>(y),
                                At<const float>(x),
                                At<const void>(weight),
                                num_rows,
                                num_heads,
                                n,
                                k,
                                x_stride,
                                format,
                                nullptr};
            const int num_workers = ThreadPool::Get().num_threads();
            args.scratch = ThreadScratch(HeadLinearScratchBytes(args, num_workers));
            RunOn(HeadLinear, args, num_rows * num_heads * n * k / 16);
        },
        "y"_a, "x"_a, "weight"_a, "num_rows"_a, "num_heads"_a, "n"_a, "k"_a, "x_stride"_a,
        "format"_a);
    m.def(
        "write_latent",
        [](const PagedBatch& batch, Address latent, Address rotated, Address cache,
           Address positions, FloatType cache_type, std::int64_t latent_dim,
           std::int64_t rotated_dim, std::int64_t latent_stride, std::int64_t rotated_stride) {
            const WriteLatentArgs args{At<const float>(latent),
                                       At<const float>(rotated),
                                       At<void>(cache),
                                       At<const std::int32_t>(positions),
                                       batch,
                                       cache_type,
                                       latent_dim,
                                       rotated_dim,
                                       latent_stride,
                                       rotated_stride};
            CheckWriteLatent(args);
            RunOn(WriteLatent, args, batch.num_tokens * (latent_dim + rotated_dim));
        },
        "batch"_a, "latent"_a, "rotated"_a, "cache"_a, "positions"_a, "cache_type"_a,
        "latent_dim"_a, "rotated_dim"_a, "latent_stride"_a, "rotated_stride"_a);
    m.def(
        "mla_attention",
        [](const PagedBatch& batch, Address out, Address q, Address q_tail, Address cache,
           Address kv_lens, FloatType cache_type, std::int64_t num_heads, std::int64_t latent_dim,
           std::int64_t tail_dim, std::int64_t q_stride, std::int64_t tail_stride, float scale) {
            const AttentionArgs args{At<float>(out),
                                     At<const float>(q),
                                     At<const void>(cache),
                                     At<const void>(cache),
                                     At<const std::int32_t>(kv_lens),
                                     nullptr,
                                     batch,
                                     cache_type,
                                     num_heads,
                                     1,
                                     latent_dim + tail_dim,
                                     q_stride,
                                     0,
                                     scale,
                                     0,
                                     At<const float>(q_tail),
                                     tail_dim,
                                     tail_stride,
                                     latent_dim};
            ThreadPool& pool = ThreadPool::Get();
            const int num_workers = pool.num_threads();
            const AttentionPlan plan = AttentionPlan::Make(args, num_workers);
            std::int64_t work = 0;
            for (const AttentionItem& item : plan.items) {
                work += std::int64_t{item.num_partitions} * item.num_queries;
            }
            work *= num_heads * args.head_dim * kPartitionTokens / 8;
            void* scratch = ThreadScratch(AttentionScratchBytes(args, plan, num_workers));
            const Company company(work);
            PagedAttention(PlannedAttention(args, plan, num_workers, scratch), pool,
                           MaxWorkers(work));
        },
        "batch"_a, "out"_a, "q"_a, "q_tail"_a, "cache"_a, "kv_lens"_a, "cache_type"_a,
        "num_heads"_a, "latent_dim"_a, "tail_dim"_a, "q_stride"_a, "tail_stride"_a, "scale"_a);
}

}  // namespace tokenlight::cpu
