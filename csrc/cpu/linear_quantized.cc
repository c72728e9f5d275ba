// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear_quantized_layout.h"

#define TL_BODY "cpu/linear_quantized_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void QuantizedLinear(const LinearArgs& args, Worker& worker) {
    switch (args.format) {
        case WeightFormat::kQ4_0:
            return TL_DISPATCH(ProductQ4_0)(args, worker);
        case WeightFormat::kQ4_1:
            return TL_DISPATCH(ProductQ4_1)(args, worker);
        case WeightFormat::kQ8_0:
            return TL_DISPATCH(ProductQ8_0)(args, worker);
        case WeightFormat::kF32:
        case WeightFormat::kF16:
        case WeightFormat::kBf16:
            return;
    }
}

}  // namespace tokenlight::cpu
