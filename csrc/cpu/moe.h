// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/threads.h"
#include "cpu/weights.h"

namespace tokenlight::cpu {

// out[t] = sum over a of routing[t, a] * expert experts[t, a] of x[t], in the order of a. Experts
// outside [first_expert, first_expert + num_experts) are another's and add nothing.
//
// An expert: gate and up of x, each with its bias; both clamped to `limit` (gate from above); gate
// * sigmoid(alpha * gate) * (up + shift); down of that, with its bias.
struct MoeArgs {
    float* out;  // [num_tokens, dim], contiguous
    const float* x;
    const std::int32_t* experts;  // [num_tokens, per_token]
    const float* routing;         // [num_tokens, per_token]
    const void* gate_up;          // [num_experts, 2 * inner, dim]: gate's rows, then up's
    const void* down;             // [num_experts, dim, inner]
    const float* gate_up_bias;    // [num_experts, 2 * inner] or null
    const float* down_bias;       // [num_experts, dim] or null
    std::int64_t num_tokens;
    std::int64_t dim;
    std::int64_t inner;
    std::int64_t num_experts;
    std::int64_t per_token;
    std::int64_t first_expert;
    std::int64_t x_stride;  // floats between tokens
    WeightFormat gate_up_format;
    WeightFormat down_format;
    float limit;  // 0: none
    float alpha;
    float shift;
};

// Some of an expert's rows, side by side in the order of experts.
struct MoeChunk {
    std::int64_t expert;  // counted from first_expert
    std::int64_t first;
    std::int64_t count;
};

// A call's (token, choice) pairs by expert, and the cuts that workers take. Cuts change who
// computes what and never a bit of the result.
struct MoePlan {
    std::vector<std::int32_t> pairs;   // by row: token * per_token + choice
    std::vector<std::int32_t> row_of;  // by pair: its row, or -1 where the expert is another's
    std::vector<MoeChunk> chunks;
    std::int64_t inner_width = 0;  // columns of gate (and of up) in an item
    std::int64_t dim_width = 0;    // columns of down in an item
    std::int64_t num_inner_slices = 0;
    std::int64_t num_dim_slices = 0;

    static MoePlan Make(const MoeArgs& args, int num_workers);
};

std::size_t MoeScratchBytes(const MoeArgs& args, const MoePlan& plan, int num_workers);

// `scratch`: MoeScratchBytes bytes for `num_workers`, aligned to 64.
void Moe(const MoeArgs& args, const MoePlan& plan, ThreadPool& pool, int num_workers,
         void* scratch);

// The same in passes of so many tokens that what is between the products stays of a bounded size,
// with the calling thread's scratch.
void MoeInPasses(const MoeArgs& args, ThreadPool& pool);

}  // namespace tokenlight::cpu
