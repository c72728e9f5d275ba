// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// In place: for each head, x[i], x[i + r/2] become x[i] cos - x[i + r/2] sin, x[i + r/2] cos + x[i]
// sin for i < r/2. Heads of a token are contiguous; tokens are a stride apart (in floats).
struct RopeArgs {
    float* q;
    float* k;
    const float* cos_sin;  // [num_tokens, rotated]: cosines, then sines
    std::int64_t num_tokens;
    std::int64_t num_q_heads;
    std::int64_t num_k_heads;
    std::int64_t head_dim;
    std::int64_t rotated;
    std::int64_t q_stride;
    std::int64_t k_stride;
};

void Rope(const RopeArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
