// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"
#include "cpu/weights.h"

namespace tokenlight::cpu {

// Quantized rows as a file stores them, to layout tile16. The rows may lie anywhere, so that parts
// of a fused weight need no copy under each other first.
struct PackArgs {
    std::uint8_t* out;                // num_rows * RowBytes(format, k), written whole
    const std::uint8_t* const* rows;  // the address of each stored row
    std::int64_t num_rows;
    std::int64_t num_blocks;  // per row
    WeightFormat format;
};

// Throws std::invalid_argument for a dense format, which has no tiles.
void CheckPack(const PackArgs& args);

// `args` must have passed CheckPack.
void Pack(const PackArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
