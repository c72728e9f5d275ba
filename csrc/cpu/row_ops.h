// SPDX-License-Identifier: Apache-2.0
// Small ops on rows of floats, between the products of a step.
#pragma once

#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// out = x + y, or out = x * factor where y is null. Rows of `out` are contiguous; strides are in
// floats.
struct AddArgs {
    float* out;
    const float* x;
    const float* y;
    std::int64_t num_rows;
    std::int64_t width;
    std::int64_t x_stride;
    std::int64_t y_stride;
    float factor;
};
void Add(const AddArgs& args, Worker& worker);

// sum = x + residual; out = sum / rms(sum) * weight. Rows of `out` and `sum` are contiguous.
struct AddRmsNormArgs {
    float* out;
    float* sum;
    const float* x;
    const float* residual;
    const float* weight;
    std::int64_t num_rows;
    std::int64_t width;
    std::int64_t x_stride;
    std::int64_t residual_stride;
    float eps;
};
void AddRmsNorm(const AddRmsNormArgs& args, Worker& worker);

// out[i] = x[rows[i]], or x[i] where `rows` is null.
struct CopyRowsArgs {
    float* out;
    const float* x;
    const std::int32_t* rows;
    std::int64_t num_rows;  // of `out`
    std::int64_t num_x_rows;
    std::int64_t width;
    std::int64_t out_stride;
    std::int64_t x_stride;
};
// Throws std::out_of_range when a row is outside.
void CheckRows(const CopyRowsArgs& args);
// `args` must have passed CheckRows.
void CopyRows(const CopyRowsArgs& args, Worker& worker);

// out[t] = cosines, then sines of positions[t] * frequencies, times `magnitude`.
struct RopeAnglesArgs {
    float* out;  // [num_tokens, 2 * num_frequencies]
    const std::int32_t* positions;
    const float* frequencies;
    std::int64_t num_tokens;
    std::int64_t num_frequencies;
    float magnitude;
};
void RopeAngles(const RopeAnglesArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
