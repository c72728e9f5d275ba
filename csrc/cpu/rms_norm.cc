// SPDX-License-Identifier: Apache-2.0
#include "cpu/rms_norm.h"

#define TL_BODY "cpu/rms_norm_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void RmsNorm(const RmsNormArgs& args, Worker& worker) { TL_DISPATCH(RmsNormRows)(args, worker); }

}  // namespace tokenlight::cpu
