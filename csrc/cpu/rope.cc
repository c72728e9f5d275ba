// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope.h"

#define TL_BODY "cpu/rope_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void Rope(const RopeArgs& args, Worker& worker) { TL_DISPATCH(RopeTokens)(args, worker); }

}  // namespace tokenlight::cpu
