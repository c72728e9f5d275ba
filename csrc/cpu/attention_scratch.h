// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/attention.h"

namespace tokenlight::cpu {

// Tokens whose keys are turned at a time, and whose values few rows add.
constexpr int kTileTokens = 32;

inline std::int64_t PaddedHead(const AttentionArgs& a) { return (a.head_dim + 15) / 16 * 16; }

inline std::int64_t PaddedValue(const AttentionArgs& a) { return (a.ValueDim() + 15) / 16 * 16; }

// Floats of a partial result: the largest score, the sum of weights, 14 unused, the weighted
// values.
inline std::int64_t PartialFloats(const AttentionArgs& a) { return 16 + PaddedValue(a); }

// One worker's buffers, cut from one piece of memory; all in floats.
struct AttentionBuffers {
    float* queries;         // [max_rows, padded head], scaled
    float* turned_queries;  // [padded head, max_rows]
    float* keys;            // [padded head, kTileTokens]
    float* values;          // [kPartitionTokens, padded value]
    float* scores;          // [max_rows, kPartitionTokens]
    float* sums;            // [max_rows, padded value]: of one partition
    float* states;          // [max_rows, PartialFloats]: merged so far
    float* largest;         // [max_rows]: of one partition
    float* weights;         // [max_rows]: of one partition
    std::int64_t total;     // floats

    AttentionBuffers(const AttentionArgs& a, std::int64_t max_rows, float* memory) {
        const std::int64_t rows = (max_rows + 15) / 16 * 16;
        float* at = memory;
        const auto take = [&at](std::int64_t count) {
            float* taken = at;
            at += count;
            return taken;
        };
        queries = take(rows * PaddedHead(a));
        turned_queries = take(PaddedHead(a) * rows);
        keys = take(PaddedHead(a) * kTileTokens);
        values = take(PaddedValue(a) * kPartitionTokens);
        scores = take(rows * kPartitionTokens);
        sums = take(rows * PaddedValue(a));
        states = take(rows * PartialFloats(a));
        largest = take(rows);
        weights = take(rows);
        total = at - memory;
    }
};

}  // namespace tokenlight::cpu
