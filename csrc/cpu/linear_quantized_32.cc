// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear_quantized_layout.h"

#define TL_BODY "cpu/linear_quantized_32_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void QuantizedLinear32(const LinearJob& job, Worker& worker) {
    switch (job.args.format) {
        case WeightFormat::kQ4_0:
            return TL_DISPATCH(ProductQ4_0)(job, worker);
        case WeightFormat::kQ4_1:
            return TL_DISPATCH(ProductQ4_1)(job, worker);
        case WeightFormat::kQ5_0:
            return TL_DISPATCH(ProductQ5_0)(job, worker);
        case WeightFormat::kQ5_1:
            return TL_DISPATCH(ProductQ5_1)(job, worker);
        case WeightFormat::kQ8_0:
            return TL_DISPATCH(ProductQ8_0)(job, worker);
        case WeightFormat::kIq4Nl:
            return TL_DISPATCH(ProductIq4Nl)(job, worker);
        case WeightFormat::kMxfp4:
            return TL_DISPATCH(ProductMxfp4)(job, worker);
        default:
            return;
    }
}

}  // namespace tokenlight::cpu
