// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// out[row] = f(x[row]) * x[row][width:], for the gated forms; out[row] = f(x[row]) for softcap.
// `out` is contiguous.
struct ActivationArgs {
    float* out;
    const float* x;
    std::int64_t num_rows;
    std::int64_t width;  // of a row of `out`
    std::int64_t x_stride;
    float cap;  // softcap only
};

void SiluMul(const ActivationArgs& args, Worker& worker);
void GeluTanhMul(const ActivationArgs& args, Worker& worker);
void Softcap(const ActivationArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
