// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/threads.h"
#include "cpu/weights.h"

namespace tokenlight::cpu {

// y[t, h] = W[h] x[t, h].
struct HeadLinearArgs {
    float* y;  // [num_rows, num_heads, n], contiguous
    const float* x;
    const void* weight;  // [num_heads, n, k]
    std::int64_t num_rows;
    std::int64_t num_heads;
    std::int64_t n;
    std::int64_t k;
    std::int64_t x_stride;  // floats between tokens; heads are side by side
    WeightFormat format;
    void* scratch;  // HeadLinearScratchBytes bytes, aligned to 64
};

std::size_t HeadLinearScratchBytes(const HeadLinearArgs& args, int num_workers);

void HeadLinear(const HeadLinearArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
