// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/paged.h"
#include "cpu/threads.h"

namespace tokenlight::cpu {

struct WriteKvArgs {
    const float* k;
    const float* v;
    void* k_cache;  // [num_blocks, num_heads, block_tokens, head_dim]
    void* v_cache;
    const std::int32_t* positions;
    PagedBatch batch;
    FloatType cache_type;
    std::int64_t num_heads;
    std::int64_t head_dim;
    std::int64_t k_stride;  // floats between tokens
    std::int64_t v_stride;
};

// Throws std::out_of_range.
void CheckWriteKv(const WriteKvArgs& args);

// `args` must have passed CheckWriteKv.
void WriteKv(const WriteKvArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
