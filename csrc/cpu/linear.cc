// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear.h"

#include "cpu/linear_quantized_layout.h"

namespace tokenlight::cpu {

std::size_t LinearScratchBytes(const LinearArgs& args, int num_workers) {
    if (IsDense(args.format)) return 0;
    return static_cast<std::size_t>(SharedBytes(args) + num_workers * WorkerBytes(args));
}

void Linear(const LinearArgs& args, ThreadPool& pool, std::int64_t max_workers) {
    if (IsDense(args.format)) {
        return pool.Run(DenseLinear, LinearJob{args, LinearPhase::kMultiply}, max_workers);
    }
    const auto quantized =
        LayoutOf(args.format).num_elements == 32 ? QuantizedLinear32 : QuantizedLinear256;
    if (!RoundsPrivately(args)) {
        pool.Run(quantized, LinearJob{args, LinearPhase::kRound}, max_workers);
    }
    pool.Run(quantized, LinearJob{args, LinearPhase::kMultiply}, max_workers);
}

void LinearAlone(const LinearArgs& args) {
    const auto run = [&args](void (*kernel)(const LinearJob&, Worker&), LinearPhase phase) {
        Region region(1);
        Worker alone(region, 0, 1);
        kernel(LinearJob{args, phase}, alone);
    };
    if (IsDense(args.format)) return run(DenseLinear, LinearPhase::kMultiply);
    const auto quantized =
        LayoutOf(args.format).num_elements == 32 ? QuantizedLinear32 : QuantizedLinear256;
    if (!RoundsPrivately(args)) run(quantized, LinearPhase::kRound);
    run(quantized, LinearPhase::kMultiply);
}

}  // namespace tokenlight::cpu
