// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/paged.h"
#include "cpu/threads.h"

namespace tokenlight::cpu {

// Stores each token's latent and, beside it, the rotated part of its key.
struct WriteLatentArgs {
    const float* latent;
    const float* rotated;
    void* cache;  // [num_blocks, block_tokens, latent_dim + rotated_dim]
    const std::int32_t* positions;
    PagedBatch batch;
    FloatType cache_type;
    std::int64_t latent_dim;
    std::int64_t rotated_dim;
    std::int64_t latent_stride;  // floats between tokens
    std::int64_t rotated_stride;
};

// Throws std::out_of_range.
void CheckWriteLatent(const WriteLatentArgs& args);

// `args` must have passed CheckWriteLatent.
void WriteLatent(const WriteLatentArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
