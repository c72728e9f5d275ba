// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tokenlight::cpu {

// Names as in GGUF. Quantized weights are in layout tile16 (tokenlight/kernels/formats/tile16.py).
enum class WeightFormat { kF32, kF16, kBf16, kQ4_0, kQ4_1, kQ8_0 };

constexpr int kTileRows = 16;
constexpr int kBlockElements = 32;

inline bool IsDense(WeightFormat format) { return format <= WeightFormat::kBf16; }

// Bytes of a row of `k` weights.
constexpr std::int64_t RowBytes(WeightFormat format, std::int64_t k) {
    switch (format) {
        case WeightFormat::kF32:
            return k * 4;
        case WeightFormat::kF16:
        case WeightFormat::kBf16:
            return k * 2;
        case WeightFormat::kQ4_0:
            return k / kBlockElements * 18;
        case WeightFormat::kQ4_1:
            return k / kBlockElements * 20;
        case WeightFormat::kQ8_0:
            return k / kBlockElements * 34;
    }
    return 0;
}

}  // namespace tokenlight::cpu
