// SPDX-License-Identifier: Apache-2.0
// A compiled step: the entries in tokenlight/kernels/ops/*/cpu.py append its instructions, each the
// call of a kernel whose tensors are found when it runs.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "bindings/cpu_call.h"
#include "cpu/activation.h"
#include "cpu/attention.h"
#include "cpu/embedding.h"
#include "cpu/linear.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/rope_write_kv.h"
#include "cpu/row_ops.h"
#include "cpu/scratch.h"
#include "cpu/step_program.h"
#include "cpu/write_kv.h"

namespace tokenlight::cpu {

void BindExpertNodes(nb::class_<StepProgram>& program);  // cpu_experts.cc

namespace {

using Program = nb::class_<StepProgram>;

// Steps of so many tokens take long enough that other Python threads should run meanwhile.
constexpr std::int64_t kTokensWithoutGil = 64;

void BindRowNodes(Program& program) {
    program.def(
        "rms_norm",
        [](StepProgram& self, Place out, Place x, Place weight, Count rows, std::int64_t num_inner,
           std::int64_t width, std::int64_t outer_stride, std::int64_t inner_stride, float eps) {
            self.Append([=](StepRun& run) {
                const RmsNormArgs args{run.At<float>(out),
                                       run.At<const float>(x),
                                       run.At<const float>(weight),
                                       run.Get(rows),
                                       num_inner,
                                       width,
                                       outer_stride,
                                       inner_stride,
                                       eps};
                Spread(RmsNorm, args, args.num_outer * num_inner * width);
            });
        },
        "out"_a, "x"_a, "weight"_a, "rows"_a, "num_inner"_a, "width"_a, "outer_stride"_a,
        "inner_stride"_a, "eps"_a);
    program.def(
        "add_rms_norm",
        [](StepProgram& self, Place out, Place sum, Place x, Place residual, Place weight,
           Count rows, std::int64_t width, std::int64_t x_stride, std::int64_t residual_stride,
           float eps) {
            self.Append([=](StepRun& run) {
                const AddRmsNormArgs args{run.At<float>(out),
                                          run.At<float>(sum),
                                          run.At<const float>(x),
                                          run.At<const float>(residual),
                                          run.At<const float>(weight),
                                          run.Get(rows),
                                          width,
                                          x_stride,
                                          residual_stride,
                                          eps};
                Spread(AddRmsNorm, args, 2 * args.num_rows * width);
            });
        },
        "out"_a, "sum"_a, "x"_a, "residual"_a, "weight"_a, "rows"_a, "width"_a, "x_stride"_a,
        "residual_stride"_a, "eps"_a);
    program.def(
        "add",
        [](StepProgram& self, Place out, Place x, Place y, Count rows, std::int64_t width,
           std::int64_t x_stride, std::int64_t y_stride, float factor) {
            self.Append([=](StepRun& run) {
                const AddArgs args{run.At<float>(out),
                                   run.At<const float>(x),
                                   run.At<const float>(y),
                                   run.Get(rows),
                                   width,
                                   x_stride,
                                   y_stride,
                                   factor};
                Spread(Add, args, args.num_rows * width);
            });
        },
        "out"_a, "x"_a, "y"_a, "rows"_a, "width"_a, "x_stride"_a, "y_stride"_a, "factor"_a,
        "`out = x + y`, or `x * factor` where there is no `y`.");
    program.def(
        "copy_rows",
        [](StepProgram& self, Place out, std::int64_t out_column, Place x, Place picked, Count rows,
           Count x_rows, std::int64_t width, std::int64_t out_stride, std::int64_t x_stride) {
            self.Append([=](StepRun& run) {
                const CopyRowsArgs args{run.At<float>(out) + out_column,
                                        run.At<const float>(x),
                                        run.At<const std::int32_t>(picked),
                                        run.Get(rows),
                                        run.Get(x_rows),
                                        width,
                                        out_stride,
                                        x_stride};
                CheckRows(args);
                Spread(CopyRows, args, args.num_rows * width);
            });
        },
        "out"_a, "out_column"_a, "x"_a, "picked"_a, "rows"_a, "x_rows"_a, "width"_a, "out_stride"_a,
        "x_stride"_a);
    const auto activation = [&program](const char* name,
                                       void (*job)(const ActivationArgs&, Worker&)) {
        program.def(
            name,
            [job](StepProgram& self, Place out, Place x, Count rows, std::int64_t width,
                  std::int64_t x_stride, float cap) {
                self.Append([=](StepRun& run) {
                    const ActivationArgs args{run.At<float>(out), run.At<const float>(x),
                                              run.Get(rows),      width,
                                              x_stride,           cap};
                    Spread(job, args, 4 * args.num_rows * width);
                });
            },
            "out"_a, "x"_a, "rows"_a, "width"_a, "x_stride"_a, "cap"_a);
    };
    activation("silu_mul", SiluMul);
    activation("gelu_tanh_mul", GeluTanhMul);
    activation("softcap", Softcap);
}

void BindRopeNodes(Program& program) {
    program.def(
        "rope_angles",
        [](StepProgram& self, Place out, Place positions, Place frequencies, Count rows,
           std::int64_t num_frequencies, float magnitude) {
            self.Append([=](StepRun& run) {
                const RopeAnglesArgs args{run.At<float>(out),
                                          run.At<const std::int32_t>(positions),
                                          run.At<const float>(frequencies),
                                          run.Get(rows),
                                          num_frequencies,
                                          magnitude};
                Spread(RopeAngles, args, 32 * args.num_tokens * num_frequencies);
            });
        },
        "out"_a, "positions"_a, "frequencies"_a, "rows"_a, "num_frequencies"_a, "magnitude"_a);
    program.def(
        "rope",
        [](StepProgram& self, Place q, Place k, Place cos_sin, Count rows, std::int64_t num_q_heads,
           std::int64_t num_k_heads, std::int64_t head_dim, std::int64_t rotated,
           std::int64_t q_stride, std::int64_t k_stride) {
            self.Append([=](StepRun& run) {
                const RopeArgs args{
                    run.At<float>(q), run.At<float>(k), run.At<const float>(cos_sin),
                    run.Get(rows),    num_q_heads,      num_k_heads,
                    head_dim,         rotated,          q_stride,
                    k_stride};
                Spread(Rope, args, args.num_tokens * (num_q_heads + num_k_heads) * rotated);
            });
        },
        "q"_a, "k"_a, "cos_sin"_a, "rows"_a, "num_q_heads"_a, "num_k_heads"_a, "head_dim"_a,
        "rotated"_a, "q_stride"_a, "k_stride"_a);
}

void BindWeightNodes(Program& program) {
    program.def(
        "linear",
        [](StepProgram& self, Place y, Place x, Place weight, Place bias, Count rows,
           std::int64_t n, std::int64_t k, std::int64_t x_stride, WeightFormat format,
           bool is_gated) {
            const bool rounds_to_bytes = self.rounds_to_bytes();
            self.Append([=](StepRun& run) {
                LinearArgs args{run.At<float>(y),
                                run.At<const float>(x),
                                run.At<const void>(weight),
                                run.At<const float>(bias),
                                run.Get(rows),
                                n,
                                k,
                                x_stride,
                                format,
                                nullptr,
                                is_gated,
                                rounds_to_bytes};
                ThreadPool& pool = ThreadPool::Get();
                args.scratch = ThreadScratch(LinearScratchBytes(args, pool.num_threads()));
                Linear(args, pool, MaxWorkers(args.num_rows * n * k / 16));
            });
        },
        "y"_a, "x"_a, "weight"_a, "bias"_a, "rows"_a, "n"_a, "k"_a, "x_stride"_a, "format"_a,
        "is_gated"_a);
    program.def(
        "embedding",
        [](StepProgram& self, Place out, Place ids, Place table, Count rows,
           std::int64_t table_rows, std::int64_t width, WeightFormat format) {
            self.Append([=](StepRun& run) {
                const EmbeddingArgs args{run.At<float>(out),
                                         run.At<const std::int32_t>(ids),
                                         run.At<const void>(table),
                                         run.Get(rows),
                                         table_rows,
                                         width,
                                         format};
                CheckIds(args);
                Spread(Embedding, args, 2 * args.num_ids * width);
            });
        },
        "out"_a, "ids"_a, "table"_a, "rows"_a, "table_rows"_a, "width"_a, "format"_a);
}

// What the two ways to write a cache have in common.
struct KvNode {
    Place k, v, k_cache, v_cache, positions;
    PagedPlaces paged;
    FloatType cache_type;
    std::int64_t num_heads, head_dim, k_stride, v_stride;

    WriteKvArgs Args(StepRun& run) const {
        const WriteKvArgs args{run.At<const float>(k),
                               run.At<const float>(v),
                               run.At<void>(k_cache),
                               run.At<void>(v_cache),
                               run.At<const std::int32_t>(positions),
                               run.Batch(paged),
                               cache_type,
                               num_heads,
                               head_dim,
                               k_stride,
                               v_stride};
        run.CheckOnce(args);
        return args;
    }
};

void BindPagedNodes(nb::module_& m, Program& program) {
    nb::class_<PagedPlaces>(m, "PagedPlaces", "Where a step's requests and their cache are.")
        .def(nb::init<Place, Place, Place, std::int64_t, std::int64_t>(), "query_starts"_a,
             "block_table"_a, "slots"_a, "num_blocks"_a, "block_tokens"_a);
    nb::class_<KvNode>(m, "KvNode", "What is written into a layer's cache.")
        .def(nb::init<Place, Place, Place, Place, Place, PagedPlaces, FloatType, std::int64_t,
                      std::int64_t, std::int64_t, std::int64_t>(),
             "k"_a, "v"_a, "k_cache"_a, "v_cache"_a, "positions"_a, "paged"_a, "cache_type"_a,
             "num_heads"_a, "head_dim"_a, "k_stride"_a, "v_stride"_a);
    program.def(
        "write_kv",
        [](StepProgram& self, const KvNode& kv) {
            self.Append([kv](StepRun& run) {
                const WriteKvArgs args = kv.Args(run);
                Spread(WriteKv, args, 2 * args.batch.num_tokens * kv.num_heads * kv.head_dim);
            });
        },
        "kv"_a);
    program.def(
        "rope_write_kv",
        [](StepProgram& self, const KvNode& kv, Place q, Place cos_sin, Place q_weight,
           Place k_weight, std::int64_t num_q_heads, std::int64_t q_stride, std::int64_t rotated,
           float eps) {
            self.Append([=](StepRun& run) {
                const RopeWriteKvArgs args{run.At<float>(q),
                                           run.At<const float>(cos_sin),
                                           run.At<const float>(q_weight),
                                           run.At<const float>(k_weight),
                                           kv.Args(run),
                                           num_q_heads,
                                           q_stride,
                                           rotated,
                                           eps};
                Spread(
                    RopeWriteKv, args,
                    2 * args.kv.batch.num_tokens * (num_q_heads + 2 * kv.num_heads) * kv.head_dim);
            });
        },
        "kv"_a, "q"_a, "cos_sin"_a, "q_weight"_a, "k_weight"_a, "num_q_heads"_a, "q_stride"_a,
        "rotated"_a, "eps"_a);
    program.def(
        "paged_attention",
        [](StepProgram& self, Place out, Place q, Place k_cache, Place v_cache, Place kv_lens,
           Place sinks, PagedPlaces paged, FloatType cache_type, std::int64_t num_heads,
           std::int64_t num_kv_heads, std::int64_t head_dim, std::int64_t q_stride,
           std::int64_t window, float scale, float softcap) {
            self.Append([=](StepRun& run) {
                const AttentionArgs args{run.At<float>(out),
                                         run.At<const float>(q),
                                         run.At<const void>(k_cache),
                                         run.At<const void>(v_cache),
                                         run.At<const std::int32_t>(kv_lens),
                                         run.At<const float>(sinks),
                                         run.Batch(paged),
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
                const StepRun::Attention& planned = run.PlanAttention(args, num_workers);
                void* scratch =
                    ThreadScratch(AttentionScratchBytes(args, planned.plan, num_workers));
                PagedAttention(PlannedAttention(args, planned.plan, num_workers, scratch), pool,
                               MaxWorkers(planned.work));
            });
        },
        "out"_a, "q"_a, "k_cache"_a, "v_cache"_a, "kv_lens"_a, "sinks"_a, "paged"_a, "cache_type"_a,
        "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "q_stride"_a, "window"_a, "scale"_a,
        "softcap"_a);
}

}  // namespace

void BindProgram(nb::module_& m) {
    nb::class_<Place>(m, "Place", "Where an instruction finds a tensor when it runs.")
        .def_static("none", [] { return Place{}; })
        .def_static(
            "fixed", [](Address address) { return Place{Place::Base::kFixed, address}; },
            "address"_a)
        .def_static(
            "arena", [](std::uintptr_t at) { return Place{Place::Base::kArena, at}; },
            "num_bytes"_a)
        .def_static(
            "field", [](std::uintptr_t index) { return Place{Place::Base::kField, index}; },
            "index"_a);
    nb::class_<Count>(m, "Count", "Rows: a multiple of a step's tokens or of its sampled rows.")
        .def(nb::init<std::int64_t, std::int64_t>(), "per_token"_a, "per_sampled"_a);
    Program program(m, "StepProgram", "A step as calls of kernels, with no Python between them.");
    program
        .def(nb::init<Address, std::int64_t, bool>(), "arena"_a, "num_fields"_a,
             "rounds_to_bytes"_a)
        .def("__len__", &StepProgram::size)
        .def(
            "set_field",
            [](StepProgram& self, std::int64_t index, Address address, std::int64_t num_rows,
               std::int64_t num_columns, std::int64_t stride) {
                self.SetField(index, {address, num_rows, num_columns, stride});
            },
            "index"_a, "address"_a, "num_rows"_a, "num_columns"_a, "stride"_a)
        .def(
            "run",
            [](StepProgram& self, std::int64_t first, std::int64_t last, std::int64_t num_tokens,
               std::int64_t num_sampled) {
                std::optional<nb::gil_scoped_release> released;
                if (num_tokens >= kTokensWithoutGil) released.emplace();
                self.Run(first, last, num_tokens, num_sampled);
            },
            "first"_a, "last"_a, "num_tokens"_a, "num_sampled"_a);
    BindRowNodes(program);
    BindRopeNodes(program);
    BindWeightNodes(program);
    BindPagedNodes(m, program);
    BindExpertNodes(program);
}

}  // namespace tokenlight::cpu
