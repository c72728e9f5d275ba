// SPDX-License-Identifier: Apache-2.0
// Experts and latent attention as instructions of a compiled step.

#include "bindings/cpu_call.h"
#include "cpu/attention.h"
#include "cpu/head_linear.h"
#include "cpu/latent.h"
#include "cpu/moe.h"
#include "cpu/route.h"
#include "cpu/scratch.h"
#include "cpu/step_program.h"

namespace tokenlight::cpu {

void BindExpertNodes(nb::class_<StepProgram>& program) {
    program.def(
        "route",
        [](StepProgram& self, Place experts, Place weights, Place logits, Place bias, Count rows,
           std::int64_t num_experts, std::int64_t logits_stride, std::int64_t top_k,
           std::int64_t num_groups, std::int64_t top_groups, std::int64_t group_best,
           bool is_sigmoid, bool renormalises, float scale) {
            self.Append([=](StepRun& run) {
                RouteArgs args{run.At<std::int32_t>(experts),
                               run.At<float>(weights),
                               run.At<const float>(logits),
                               run.At<const float>(bias),
                               run.Get(rows),
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
                const int num_workers = ThreadPool::Get().num_threads();
                args.scratch = ThreadScratch(RouteScratchBytes(args, num_workers));
                Spread(Route, args, args.num_tokens * num_experts * (top_k + 4));
            });
        },
        "experts"_a, "weights"_a, "logits"_a, "bias"_a, "rows"_a, "num_experts"_a,
        "logits_stride"_a, "top_k"_a, "num_groups"_a, "top_groups"_a, "group_best"_a,
        "is_sigmoid"_a, "renormalises"_a, "scale"_a);
    program.def(
        "moe",
        [](StepProgram& self, Place out, Place x, Place experts, Place routing, Place gate_up,
           Place down, Place gate_up_bias, Place down_bias, Count rows, std::int64_t dim,
           std::int64_t inner, std::int64_t num_experts, std::int64_t per_token,
           std::int64_t first_expert, std::int64_t x_stride, WeightFormat gate_up_format,
           WeightFormat down_format, float limit, float alpha, float shift) {
            self.Append([=](StepRun& run) {
                const MoeArgs args{run.At<float>(out),
                                   run.At<const float>(x),
                                   run.At<const std::int32_t>(experts),
                                   run.At<const float>(routing),
                                   run.At<const void>(gate_up),
                                   run.At<const void>(down),
                                   run.At<const float>(gate_up_bias),
                                   run.At<const float>(down_bias),
                                   run.Get(rows),
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
                MoeInPasses(args, ThreadPool::Get());
            });
        },
        "out"_a, "x"_a, "experts"_a, "routing"_a, "gate_up"_a, "down"_a, "gate_up_bias"_a,
        "down_bias"_a, "rows"_a, "dim"_a, "inner"_a, "num_experts"_a, "per_token"_a,
        "first_expert"_a, "x_stride"_a, "gate_up_format"_a, "down_format"_a, "limit"_a, "alpha"_a,
        "shift"_a);
    program.def(
        "head_linear",
        [](StepProgram& self, Place y, Place x, Place weight, Count rows, std::int64_t num_heads,
           std::int64_t n, std::int64_t k, std::int64_t x_stride, WeightFormat format) {
            self.Append([=](StepRun& run) {
                HeadLinearArgs args{run.At<float>(y),
                                    run.At<const float>(x),
                                    run.At<const void>(weight),
                                    run.Get(rows),
                                    num_heads,
                                    n,
                                    k,
                                    x_stride,
                                    format,
                                    nullptr};
                const int num_workers = ThreadPool::Get().num_threads();
                args.scratch = ThreadScratch(HeadLinearScratchBytes(args, num_workers));
                Spread(HeadLinear, args, args.num_rows * num_heads * n * k / 16);
            });
        },
        "y"_a, "x"_a, "weight"_a, "rows"_a, "num_heads"_a, "n"_a, "k"_a, "x_stride"_a, "format"_a);
    program.def(
        "write_latent",
        [](StepProgram& self, PagedPlaces paged, Place latent, Place rotated, Place cache,
           Place positions, FloatType cache_type, std::int64_t latent_dim, std::int64_t rotated_dim,
           std::int64_t latent_stride, std::int64_t rotated_stride) {
            self.Append([=](StepRun& run) {
                const WriteLatentArgs args{run.At<const float>(latent),
                                           run.At<const float>(rotated),
                                           run.At<void>(cache),
                                           run.At<const std::int32_t>(positions),
                                           run.Batch(paged),
                                           cache_type,
                                           latent_dim,
                                           rotated_dim,
                                           latent_stride,
                                           rotated_stride};
                CheckWriteLatent(args);
                Spread(WriteLatent, args, args.batch.num_tokens * (latent_dim + rotated_dim));
            });
        },
        "paged"_a, "latent"_a, "rotated"_a, "cache"_a, "positions"_a, "cache_type"_a,
        "latent_dim"_a, "rotated_dim"_a, "latent_stride"_a, "rotated_stride"_a);
    program.def(
        "mla_attention",
        [](StepProgram& self, PagedPlaces paged, Place out, Place q, Place q_tail, Place cache,
           Place kv_lens, FloatType cache_type, std::int64_t num_heads, std::int64_t latent_dim,
           std::int64_t tail_dim, std::int64_t q_stride, std::int64_t tail_stride, float scale) {
            self.Append([=](StepRun& run) {
                const AttentionArgs args{run.At<float>(out),
                                         run.At<const float>(q),
                                         run.At<const void>(cache),
                                         run.At<const void>(cache),
                                         run.At<const std::int32_t>(kv_lens),
                                         nullptr,
                                         run.Batch(paged),
                                         cache_type,
                                         num_heads,
                                         1,
                                         latent_dim + tail_dim,
                                         q_stride,
                                         0,
                                         scale,
                                         0,
                                         run.At<const float>(q_tail),
                                         tail_dim,
                                         tail_stride,
                                         latent_dim};
                ThreadPool& pool = ThreadPool::Get();
                const int num_workers = pool.num_threads();
                const StepRun::Attention& planned = run.PlanAttention(args, num_workers);
                void* scratch =
                    ThreadScratch(AttentionScratchBytes(args, planned.plan, num_workers));
                PagedAttention(PlannedAttention(args, planned.plan, num_workers, scratch), pool,
                               MaxWorkers(planned.work));
            });
        },
        "paged"_a, "out"_a, "q"_a, "q_tail"_a, "cache"_a, "kv_lens"_a, "cache_type"_a,
        "num_heads"_a, "latent_dim"_a, "tail_dim"_a, "q_stride"_a, "tail_stride"_a, "scale"_a);
}

}  // namespace tokenlight::cpu
