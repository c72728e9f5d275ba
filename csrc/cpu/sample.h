// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// See tokenlight/kernels/ops/sample/contract.py for what is chosen.
struct SampleArgs {
    std::int32_t* ids;    // [num_rows]
    const float* logits;  // [num_rows, vocabulary], rows `stride` apart
    const float* temperature;
    const std::int32_t* top_k;
    const float* top_p;
    const float* min_p;
    const std::int64_t* seeds;
    const std::int32_t* positions;
    std::int64_t num_rows;
    std::int64_t vocabulary;
    std::int64_t stride;
    void* scratch;  // SampleScratchBytes bytes, aligned to 64
};

std::size_t SampleScratchBytes(const SampleArgs& args, int num_workers);

void Sample(const SampleArgs& args, Worker& worker);

// The number in [0, 1) that a request with this seed draws at this position.
double UniformAt(std::int64_t seed, std::int32_t position);

}  // namespace tokenlight::cpu
