// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear.h"

#include "cpu/linear_quantized_layout.h"

namespace tokenlight::cpu {

std::size_t LinearScratchBytes(const LinearArgs& args, int num_workers) {
    if (IsDense(args.format)) return 0;
    const std::int64_t copies = RoundsPrivately(args) ? num_workers : 1;
    return static_cast<std::size_t>(TailBytes(args) + copies * XBytes(args));
}

void Linear(const LinearArgs& args, Worker& worker) {
    if (IsDense(args.format)) return DenseLinear(args, worker);
    if (LayoutOf(args.format).num_elements == 32) return QuantizedLinear32(args, worker);
    QuantizedLinear256(args, worker);
}

}  // namespace tokenlight::cpu
