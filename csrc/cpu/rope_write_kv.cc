// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope_write_kv.h"

#include "cpu/rms_norm.h"
#include "cpu/rope.h"

#define TL_BODY "cpu/rope_write_kv_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void RopeWriteKv(const RopeWriteKvArgs& args, Worker& worker) {
    switch (args.kv.cache_type) {
        case FloatType::kF32:
            return TL_DISPATCH(RopeWriteKvTokens<float>)(args, worker);
        case FloatType::kF16:
            return TL_DISPATCH(RopeWriteKvTokens<Half>)(args, worker);
        case FloatType::kBf16:
            return TL_DISPATCH(RopeWriteKvTokens<Bf16>)(args, worker);
        case FloatType::kI8:
            return TL_DISPATCH(RopeWriteKvTokens<Int8>)(args, worker);
    }
}

}  // namespace tokenlight::cpu
