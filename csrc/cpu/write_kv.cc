// SPDX-License-Identifier: Apache-2.0
#include "cpu/write_kv.h"

#define TL_BODY "cpu/write_kv_body.h"
#include "cpu/for_each_isa.h"

namespace tokenlight::cpu {

void CheckWriteKv(const WriteKvArgs& args) {
    CheckStarts(args.batch);
    for (std::int64_t r = 0; r < args.batch.num_requests; ++r) {
        for (std::int64_t t = args.batch.query_starts[r]; t < args.batch.query_starts[r + 1]; ++t) {
            CheckBlocks(args.batch, r, args.positions[t], std::int64_t{args.positions[t]} + 1);
        }
    }
}

void WriteKv(const WriteKvArgs& args, Worker& worker) {
    switch (args.cache_type) {
        case FloatType::kF32:
            return TL_DISPATCH(WriteKvTokens<float>)(args, worker);
        case FloatType::kF16:
            return TL_DISPATCH(WriteKvTokens<Half>)(args, worker);
        case FloatType::kBf16:
            return TL_DISPATCH(WriteKvTokens<Bf16>)(args, worker);
        case FloatType::kI8:
            return TL_DISPATCH(WriteKvTokens<Int8>)(args, worker);
    }
}

}  // namespace tokenlight::cpu
