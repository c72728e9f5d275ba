// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear_quantized_layout.h"

#define TL_BODY "cpu/linear_quantized_256_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void QuantizedLinear256(const LinearJob& job, Worker& worker) {
    switch (job.args.format) {
        case WeightFormat::kQ2K:
            return TL_DISPATCH(ProductQ2K)(job, worker);
        case WeightFormat::kQ3K:
            return TL_DISPATCH(ProductQ3K)(job, worker);
        case WeightFormat::kQ4K:
            return TL_DISPATCH(ProductQ4K)(job, worker);
        case WeightFormat::kQ5K:
            return TL_DISPATCH(ProductQ5K)(job, worker);
        case WeightFormat::kQ6K:
            return TL_DISPATCH(ProductQ6K)(job, worker);
        default:
            return;
    }
}

}  // namespace tokenlight::cpu
