// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// out[o][i] = x[o][i] / rms(x[o][i]) * weight, for rows o < num_outer, i < num_inner of `width`
// floats. Rows of `out` are contiguous; those of `x` are `inner_stride` apart within an o, and o's
// are `outer_stride` apart (in floats).
struct RmsNormArgs {
    float* out;
    const float* x;
    const float* weight;
    std::int64_t num_outer;
    std::int64_t num_inner;
    std::int64_t width;
    std::int64_t outer_stride;
    std::int64_t inner_stride;
    float eps;
};

void RmsNorm(const RmsNormArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
