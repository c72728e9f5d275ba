// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear.h"

#define TL_BODY "cpu/linear_dense_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void DenseLinear(const LinearJob& job, Worker& worker) {
    switch (job.args.format) {
        case WeightFormat::kF32:
            return TL_DISPATCH(PlainProduct<float>)(job.args, worker);
        case WeightFormat::kF16:
            return TL_DISPATCH(PlainProduct<Half>)(job.args, worker);
        case WeightFormat::kBf16:
            return TL_DISPATCH(PlainProduct<Bf16>)(job.args, worker);
        case WeightFormat::kFp8E4m3x32:
            return TL_DISPATCH(Fp8Product<32>)(job.args, worker);
        case WeightFormat::kFp8E4m3x64:
            return TL_DISPATCH(Fp8Product<64>)(job.args, worker);
        case WeightFormat::kFp8E4m3x128:
            return TL_DISPATCH(Fp8Product<128>)(job.args, worker);
        default:
            return;
    }
}

}  // namespace tokenlight::cpu
