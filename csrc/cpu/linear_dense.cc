// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear.h"

#define TL_BODY "cpu/linear_dense_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void DenseLinear(const LinearJob& job, Worker& worker) {
    switch (job.args.format) {
        case WeightFormat::kF32:
            return TL_DISPATCH(DenseProduct<float>)(job.args, worker);
        case WeightFormat::kF16:
            return TL_DISPATCH(DenseProduct<Half>)(job.args, worker);
        case WeightFormat::kBf16:
            return TL_DISPATCH(DenseProduct<Bf16>)(job.args, worker);
        default:
            return;
    }
}

}  // namespace tokenlight::cpu
