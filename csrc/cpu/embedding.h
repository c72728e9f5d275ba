// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/threads.h"
#include "cpu/weights.h"

namespace tokenlight::cpu {

struct EmbeddingArgs {
    float* out;  // [num_ids, width], contiguous
    const std::int32_t* ids;
    const void* table;  // as a weight of Linear
    std::int64_t num_ids;
    std::int64_t num_rows;
    std::int64_t width;
    WeightFormat format;
};

// Throws std::out_of_range when an id is outside the table.
void CheckIds(const EmbeddingArgs& args);

// `args` must have passed CheckIds.
void Embedding(const EmbeddingArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
