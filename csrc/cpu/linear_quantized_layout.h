// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/linear.h"

namespace tokenlight::cpu {

constexpr int kGroupRows = 16;
// Activations that share a step. Blocks of weights are one or several of these.
constexpr int kBlockElements = 32;

// 32 activations of each of 16 rows, rounded to multiples q of `step`, |q| <= kMaxQuant, kept as
// 128 * high + low. One byte would do for speed; two cost a second product over weights that are in
// registers already, and leave no error to speak of: a small model's answers differ from its
// float32 answers with one byte, not with two. Every instruction set reads this layout.
struct XBlock {
    std::int8_t high[kGroupRows][kBlockElements];
    std::int8_t low[kGroupRows][kBlockElements];
    float step[kGroupRows];
    // For each half of 16, or in [0] for all 32, as the format's scales go: step * sum of q, which
    // a weight's minimum is multiplied by, and -(bias of the stored weights) * sum of q.
    float step_sum[2][kGroupRows];
    std::int32_t start[2][kGroupRows];
};
// So that high fits a byte. 32 weights of 8 bits times this are below 2^31.
constexpr float kMaxQuant = 127.0F * 128.0F;

// Products with few activations round them in each worker for itself, rather than wait for each
// other.
constexpr std::int64_t kPrivateActivations = 16384;

inline bool RoundsPrivately(const LinearArgs& a) { return a.num_rows * a.k <= kPrivateActivations; }

inline std::int64_t NumGroups(const LinearArgs& a) {
    return (a.num_rows + kGroupRows - 1) / kGroupRows;
}

inline std::int64_t XBytes(const LinearArgs& a) {
    return NumGroups(a) * (a.k / kBlockElements) * static_cast<std::int64_t>(sizeof(XBlock));
}

// The rows beyond the last full tile are made into one in scratch.
inline std::int64_t TailBytes(const LinearArgs& a) {
    const std::int64_t bytes = a.n % kTileRows == 0 ? 0 : kTileRows * RowBytes(a.format, a.k);
    return (bytes + 63) / 64 * 64;
}

}  // namespace tokenlight::cpu
