// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/threads.h"

namespace tokenlight::cpu {

// Chooses `top_k` experts for each token, of its best groups, the best first; of equals the first.
struct RouteArgs {
    std::int32_t* experts;  // [num_tokens, top_k]
    float* weights;         // [num_tokens, top_k]
    const float* logits;    // rows of num_experts
    const float* bias;      // [num_experts], for the choice alone; or null
    std::int64_t num_tokens;
    std::int64_t num_experts;
    std::int64_t logits_stride;  // floats between rows
    std::int64_t top_k;
    std::int64_t num_groups;  // of equally many experts
    std::int64_t top_groups;
    std::int64_t group_best;  // how many of a group's experts make its score
    bool is_sigmoid;
    bool renormalises;
    float scale;
    void* scratch;  // RouteScratchBytes bytes, aligned to 64
};

std::size_t RouteScratchBytes(const RouteArgs& args, int num_workers);

void Route(const RouteArgs& args, Worker& worker);

}  // namespace tokenlight::cpu
