// SPDX-License-Identifier: Apache-2.0
// The compiled CPU kernels, called with addresses: a call costs a microsecond, not the five of an
// array protocol. The callers in tokenlight/kernels/ops/*/cpu.py own the arrays and have checked
// their shapes; indices in them are checked here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/cpu_call.h"
#include "cpu/activation.h"
#include "cpu/embedding.h"
#include "cpu/isa.h"
#include "cpu/linear.h"
#include "cpu/pack_queue.h"
#include "cpu/probe.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/row_ops.h"
#include "cpu/sample.h"
#include "cpu/scratch.h"
#include "cpu/threads.h"

namespace tokenlight::cpu {

void BindExpertOps(nb::module_& m);  // cpu_experts.cc
void BindPagedOps(nb::module_& m);   // cpu_paged.cc
void BindProgram(nb::module_& m);    // cpu_program.cc

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
    m.def(
        "add_rms_norm",
        [](Address out, Address sum, Address x, Address residual, Address weight,
           std::int64_t num_rows, std::int64_t width, std::int64_t x_stride,
           std::int64_t residual_stride, float eps) {
            const AddRmsNormArgs args{At<float>(out),
                                      At<float>(sum),
                                      At<const float>(x),
                                      At<const float>(residual),
                                      At<const float>(weight),
                                      num_rows,
                                      width,
                                      x_stride,
                                      residual_stride,
                                      eps};
            RunOn(AddRmsNorm, args, 2 * num_rows * width);
        },
        "out"_a, "sum"_a, "x"_a, "residual"_a, "weight"_a, "num_rows"_a, "width"_a, "x_stride"_a,
        "residual_stride"_a, "eps"_a);
    m.def(
        "add",
        [](Address out, Address x, Address y, std::int64_t num_rows, std::int64_t width,
           std::int64_t x_stride, std::int64_t y_stride, float factor) {
            const AddArgs args{At<float>(out), At<const float>(x), At<const float>(y), num_rows,
                               width,          x_stride,           y_stride,           factor};
            RunOn(Add, args, num_rows * width);
        },
        "out"_a, "x"_a, "y"_a, "num_rows"_a, "width"_a, "x_stride"_a, "y_stride"_a, "factor"_a);
    m.def(
        "copy_rows",
        [](Address out, Address x, Address picked, std::int64_t num_rows, std::int64_t num_x_rows,
           std::int64_t width, std::int64_t out_stride, std::int64_t x_stride) {
            const CopyRowsArgs args{At<float>(out),
                                    At<const float>(x),
                                    At<const std::int32_t>(picked),
                                    num_rows,
                                    num_x_rows,
                                    width,
                                    out_stride,
                                    x_stride};
            CheckRows(args);
            RunOn(CopyRows, args, num_rows * width);
        },
        "out"_a, "x"_a, "picked"_a, "num_rows"_a, "num_x_rows"_a, "width"_a, "out_stride"_a,
        "x_stride"_a);
    m.def(
        "rope_angles",
        [](Address out, Address positions, Address frequencies, std::int64_t num_tokens,
           std::int64_t num_frequencies, float magnitude) {
            const RopeAnglesArgs args{At<float>(out),
                                      At<const std::int32_t>(positions),
                                      At<const float>(frequencies),
                                      num_tokens,
                                      num_frequencies,
                                      magnitude};
            RunOn(RopeAngles, args, 32 * num_tokens * num_frequencies);
        },
        "out"_a, "positions"_a, "frequencies"_a, "num_tokens"_a, "num_frequencies"_a,
        "magnitude"_a);
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

// Where rows begin, and the sizes and strides of the dimensions before the last.
using StridedRows = std::tuple<Address, std::vector<std::int64_t>, std::vector<std::int64_t>>;

std::vector<const std::uint8_t*> RowAddresses(const std::vector<StridedRows>& parts) {
    std::vector<const std::uint8_t*> all;
    for (const auto& [first, sizes, strides] : parts) {
        if (sizes.size() != strides.size()) {
            throw std::invalid_argument("every dimension has a size and a stride");
        }
        std::vector<const std::uint8_t*> rows{At<const std::uint8_t>(first)};
        for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
            std::vector<const std::uint8_t*> inner;
            inner.reserve(rows.size() * static_cast<std::size_t>(sizes[dim]));
            for (const std::uint8_t* row : rows) {
                for (std::int64_t i = 0; i < sizes[dim]; ++i) {
                    inner.push_back(row + i * strides[dim]);
                }
            }
            rows = std::move(inner);
        }
        all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
}

// The queue is done before the memory goes that it reads and writes.
struct HoldingQueue {
    std::vector<nb::object> kept;
    PackQueue queue;
};

void BindWeightOps(nb::module_& m) {
    nb::enum_<WeightFormat>(m, "WeightFormat")
        .value("f32", WeightFormat::kF32)
        .value("f16", WeightFormat::kF16)
        .value("bf16", WeightFormat::kBf16)
        .value("fp8_e4m3_32", WeightFormat::kFp8E4m3x32)
        .value("fp8_e4m3_64", WeightFormat::kFp8E4m3x64)
        .value("fp8_e4m3_128", WeightFormat::kFp8E4m3x128)
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
           std::int64_t n, std::int64_t k, std::int64_t x_stride, WeightFormat format,
           bool is_gated) {
            LinearArgs args{At<float>(y),
                            At<const float>(x),
                            At<const void>(weight),
                            At<const float>(bias),
                            num_rows,
                            n,
                            k,
                            x_stride,
                            format,
                            nullptr,
                            is_gated};
            ThreadPool& pool = ThreadPool::Get();
            args.scratch = ThreadScratch(LinearScratchBytes(args, pool.num_threads()));
            const std::int64_t work = num_rows * n * k / 16;
            const Company company(work);
            Linear(args, pool, MaxWorkers(work));
        },
        "y"_a, "x"_a, "weight"_a, "bias"_a, "num_rows"_a, "n"_a, "k"_a, "x_stride"_a, "format"_a,
        "is_gated"_a = false);
    nb::class_<HoldingQueue>(m, "PackQueue", "Packs weights in order while Python goes on.")
        .def(nb::init<>())
        .def(
            "add",
            [](HoldingQueue& holding, Address out, const std::vector<StridedRows>& parts,
               std::int64_t num_blocks, WeightFormat format, nb::object keep) {
                std::vector<const std::uint8_t*> rows = RowAddresses(parts);
                const std::int64_t num_rows = static_cast<std::int64_t>(rows.size());
                {
                    const Company company(num_rows * num_blocks * LayoutOf(format).Bytes() / 4);
                    holding.queue.Add(At<std::uint8_t>(out), std::move(rows), num_blocks, format);
                }
                holding.kept.push_back(std::move(keep));
            },
            "out"_a, "parts"_a, "num_blocks"_a, "format"_a, "keep"_a = nb::none(),
            "Quantized rows to layout tile16. Of each part: where it begins, and the sizes and "
            "strides in bytes of the dimensions before the last. `keep` owns all this memory.")
        .def(
            "finish",
            [](HoldingQueue& holding) {
                {
                    const nb::gil_scoped_release others_run;
                    holding.queue.Finish();
                }
                holding.kept.clear();
            },
            "Return once everything that was added is packed; what was kept for it is let go.");
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
    // Programs and places live in Python modules until the interpreter ends, and then past it.
    nanobind::set_leak_warnings(false);
    BindMachine(m);
    BindRowOps(m);
    BindWeightOps(m);
    BindPagedOps(m);
    BindExpertOps(m);
    BindProgram(m);
    BindSample(m);
    BindProbes(m);
}
