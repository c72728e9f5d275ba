// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/route.h"

namespace tokenlight::cpu {

// One worker's buffers, cut from one piece of memory; all in floats, each a multiple of 16.
struct RouteBuffers {
    float* scores;       // [num_experts]
    float* choice;       // [num_experts]: what is compared
    float* groups;       // [num_groups]: their scores
    std::int64_t total;  // floats

    RouteBuffers(const RouteArgs& a, float* memory)
        : scores(memory),
          choice(scores + Padded(a.num_experts)),
          groups(choice + Padded(a.num_experts)),
          total(2 * Padded(a.num_experts) + Padded(a.num_groups)) {}

    static std::int64_t Padded(std::int64_t count) { return (count + 15) / 16 * 16; }
};

}  // namespace tokenlight::cpu
