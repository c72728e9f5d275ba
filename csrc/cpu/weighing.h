// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tokenlight::cpu {

constexpr int kWeighedTogether = 16;

// weights[i] = e^-z for z = (largest - logits[i]) / temperature; buckets[i] = z in steps, at most
// the last. The arrays are padded to a multiple of kWeighedTogether; is_near has one flag for each
// so many tokens: whether any is in a bucket before the last.
struct Weighing {
    const float* logits;
    std::int64_t count;
    float largest;
    float inverse_temperature;
    int buckets_per_unit;
    int last_bucket;
    float* weights;
    std::int32_t* buckets;
    bool* is_near;
};

}  // namespace tokenlight::cpu
