// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/paged.h"
#include "cpu/threads.h"
#include "cpu/write_kv.h"

namespace tokenlight::cpu {

constexpr std::int64_t kMaxHeadDim = 1024;

// Queries are normalised (unless q_weight is null) and rotated in place; keys likewise on their way
// into the cache, where values go as they are. The bits of RmsNorm, Rope and WriteKv.
struct RopeWriteKvArgs {
    float* q;
    const float* cos_sin;   // [num_tokens, rotated]
    const float* q_weight;  // [head_dim] or null
    const float* k_weight;
    WriteKvArgs kv;  // head_dim at most kMaxHeadDim
    std::int64_t num_q_heads;
    std::int64_t q_stride;  // floats between tokens
    std::int64_t rotated;
    float eps;
};

// `args.kv` must have passed CheckWriteKv.
void RopeWriteKv(const RopeWriteKvArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
