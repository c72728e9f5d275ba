// SPDX-License-Identifier: Apache-2.0
// Experts and latent attention, as functions and as instructions of a compiled step.

#include "bindings/cpu_both_ways.h"
#include "bindings/cpu_call.h"
#include "cpu/attention.h"
#include "cpu/head_linear.h"
#include "cpu/latent.h"
#include "cpu/moe.h"
#include "cpu/route.h"
#include "cpu/scratch.h"
#include "cpu/step_program.h"

namespace tokenlight::cpu {

void BindExpertOps(nb::module_& m);
void BindExpertNodes(nb::class_<StepProgram>& program);

namespace {

template <class Way, class Ref = typename Way::Ref>
void RouteCall(typename Way::Run& run, Ref experts, Ref weights, Ref logits, Ref bias,
               typename Way::Rows rows, std::int64_t num_experts, std::int64_t logits_stride,
               std::int64_t top_k, std::int64_t num_groups, std::int64_t top_groups,
               std::int64_t group_best, bool is_sigmoid, bool renormalises, float scale) {
    RouteArgs args{run.template At<std::int32_t>(experts),
                   run.template At<float>(weights),
                   run.template At<const float>(logits),
                   run.template At<const float>(bias),
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
    args.scratch = ThreadScratch(RouteScratchBytes(args, ThreadPool::Get().num_threads()));
    const std::int64_t work = args.num_tokens * num_experts * (top_k + 4);
    const Company company = Way::Beside(work);
    Spread(Route, args, work);
}

template <class Way, class Ref = typename Way::Ref>
void MoeCall(typename Way::Run& run, Ref out, Ref x, Ref experts, Ref routing, Ref gate_up,
             Ref down, Ref gate_up_bias, Ref down_bias, typename Way::Rows rows, std::int64_t dim,
             std::int64_t inner, std::int64_t num_experts, std::int64_t per_token,
             std::int64_t first_expert, std::int64_t x_stride, WeightFormat gate_up_format,
             WeightFormat down_format, float limit, float alpha, float shift) {
    const MoeArgs args{run.template At<float>(out),
                       run.template At<const float>(x),
                       run.template At<const std::int32_t>(experts),
                       run.template At<const float>(routing),
                       run.template At<const void>(gate_up),
                       run.template At<const void>(down),
                       run.template At<const float>(gate_up_bias),
                       run.template At<const float>(down_bias),
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
    const Company company = Way::Beside(args.num_tokens * per_token * dim * inner * 3 / 16);
    MoeInPasses(args, ThreadPool::Get());
}

template <class Way, class Ref = typename Way::Ref>
void HeadLinearCall(typename Way::Run& run, Ref y, Ref x, Ref weight, typename Way::Rows rows,
                    std::int64_t num_heads, std::int64_t n, std::int64_t k, std::int64_t x_stride,
                    WeightFormat format) {
    HeadLinearArgs args{run.template At<float>(y),
                        run.template At<const float>(x),
                        run.template At<const void>(weight),
                        run.Get(rows),
                        num_heads,
                        n,
                        k,
                        x_stride,
                        format,
                        nullptr};
    args.scratch = ThreadScratch(HeadLinearScratchBytes(args, ThreadPool::Get().num_threads()));
    const std::int64_t work = args.num_rows * num_heads * n * k / 16;
    const Company company = Way::Beside(work);
    Spread(HeadLinear, args, work);
}

template <class Way, class Ref = typename Way::Ref>
void WriteLatentCall(typename Way::Run& run, const typename Way::Paged& paged, Ref latent,
                     Ref rotated, Ref cache, Ref positions, FloatType cache_type,
                     std::int64_t latent_dim, std::int64_t rotated_dim, std::int64_t latent_stride,
                     std::int64_t rotated_stride) {
    const WriteLatentArgs args{run.template At<const float>(latent),
                               run.template At<const float>(rotated),
                               run.template At<void>(cache),
                               run.template At<const std::int32_t>(positions),
                               run.Batch(paged),
                               cache_type,
                               latent_dim,
                               rotated_dim,
                               latent_stride,
                               rotated_stride};
    CheckWriteLatent(args);
    const std::int64_t work = args.batch.num_tokens * (latent_dim + rotated_dim);
    const Company company = Way::Beside(work);
    Spread(WriteLatent, args, work);
}

template <class Way, class Ref = typename Way::Ref>
void LatentAttentionCall(typename Way::Run& run, const typename Way::Paged& paged, Ref out, Ref q,
                         Ref q_tail, Ref cache, Ref kv_lens, FloatType cache_type,
                         std::int64_t num_heads, std::int64_t latent_dim, std::int64_t tail_dim,
                         std::int64_t q_stride, std::int64_t tail_stride, float scale) {
    const AttentionArgs args{run.template At<float>(out),
                             run.template At<const float>(q),
                             run.template At<const void>(cache),
                             run.template At<const void>(cache),
                             run.template At<const std::int32_t>(kv_lens),
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
                             run.template At<const float>(q_tail),
                             tail_dim,
                             tail_stride,
                             latent_dim};
    ThreadPool& pool = ThreadPool::Get();
    const int num_workers = pool.num_threads();
    const StepRun::Attention& planned = run.PlanAttention(args, num_workers);
    void* scratch = ThreadScratch(AttentionScratchBytes(args, planned.plan, num_workers));
    const Company company = Way::Beside(planned.work);
    PagedAttention(PlannedAttention(args, planned.plan, num_workers, scratch), pool,
                   MaxWorkers(planned.work));
}

template <class Way, class Scope>
void Bind(Scope& scope) {
    Define(scope, "route", RouteCall<Way>, "experts"_a, "weights"_a, "logits"_a, "bias"_a, "rows"_a,
           "num_experts"_a, "logits_stride"_a, "top_k"_a, "num_groups"_a, "top_groups"_a,
           "group_best"_a, "is_sigmoid"_a, "renormalises"_a, "scale"_a);
    Define(scope, "moe", MoeCall<Way>, "out"_a, "x"_a, "experts"_a, "routing"_a, "gate_up"_a,
           "down"_a, "gate_up_bias"_a, "down_bias"_a, "rows"_a, "dim"_a, "inner"_a, "num_experts"_a,
           "per_token"_a, "first_expert"_a, "x_stride"_a, "gate_up_format"_a, "down_format"_a,
           "limit"_a, "alpha"_a, "shift"_a);
    Define(scope, "head_linear", HeadLinearCall<Way>, "y"_a, "x"_a, "weight"_a, "rows"_a,
           "num_heads"_a, "n"_a, "k"_a, "x_stride"_a, "format"_a);
    Define(scope, "write_latent", WriteLatentCall<Way>, "paged"_a, "latent"_a, "rotated"_a,
           "cache"_a, "positions"_a, "cache_type"_a, "latent_dim"_a, "rotated_dim"_a,
           "latent_stride"_a, "rotated_stride"_a);
    Define(scope, "mla_attention", LatentAttentionCall<Way>, "paged"_a, "out"_a, "q"_a, "q_tail"_a,
           "cache"_a, "kv_lens"_a, "cache_type"_a, "num_heads"_a, "latent_dim"_a, "tail_dim"_a,
           "q_stride"_a, "tail_stride"_a, "scale"_a);
}

}  // namespace

void BindExpertOps(nb::module_& m) { Bind<Now>(m); }

void BindExpertNodes(nb::class_<StepProgram>& program) { Bind<InStep>(program); }

}  // namespace tokenlight::cpu
