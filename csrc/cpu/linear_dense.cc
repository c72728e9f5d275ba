// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear.h"

#define TL_BODY "cpu/linear_dense_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void DenseLinear(const LinearArgs& args, Worker& worker) {
    switch (args.format) {
        case WeightFormat::kF32:
            return TL_DISPATCH(DenseProduct<float>)(args, worker);
        case WeightFormat::kF16:
            return TL_DISPATCH(DenseProduct<Half>)(args, worker);
        case WeightFormat::kBf16:
            return TL_DISPATCH(DenseProduct<Bf16>)(args, worker);
        default:
            return;
    }
}

}  // namespace tokenlight::cpu
