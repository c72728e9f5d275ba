// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/attention.h"
#include "cpu/scratch.h"

namespace tokenlight::cpu {

// Tokens whose keys are turned at a time, and whose values few rows add.
constexpr int kTileTokens = 32;
// Rows of many that share what they load.
constexpr int kGroupRows = 4;
// Rows of many whose queries are made ready together.
constexpr int kTurnedRows = 16;
// Rows whose scores are kept at a time. Up to so many read the cache in place.
constexpr int kRowsAtOnce = 8;

inline std::int64_t PaddedHead(const AttentionArgs& a) { return (a.head_dim + 15) / 16 * 16; }

inline std::int64_t PaddedValue(const AttentionArgs& a) { return (a.ValueDim() + 15) / 16 * 16; }

// Floats of a partial result: the largest score, the sum of weights, 14 unused, the weighted
// values.
inline std::int64_t PartialFloats(const AttentionArgs& a) { return 16 + PaddedValue(a); }

// One worker's buffers, cut from one piece of memory; all in floats.
struct AttentionBuffers {
    float* queries;  // [max_rows, padded head], scaled
    float* keys;     // [kPartitionTokens / kTileTokens, padded head, kTileTokens]
    float* values;   // [kPartitionTokens, padded value]
    float* states;   // [max_rows, PartialFloats]: merged so far
    // Of some rows and one partition.
    float* scores;       // [kRowsAtOnce, kPartitionTokens]
    float* sums;         // [kRowsAtOnce, padded value]
    float* largest;      // [kRowsAtOnce]
    float* weights;      // [kRowsAtOnce]
    std::int64_t total;  // floats

    AttentionBuffers(const AttentionArgs& a, std::int64_t max_rows, float* memory) {
        const std::int64_t rows = (max_rows + 15) / 16 * 16;
        float* at = memory;
        const auto take = [&at](std::int64_t count) {
            float* taken = at;
            at += count;
            return taken;
        };
        queries = take(rows * PaddedHead(a));
        keys = take(PaddedHead(a) * kPartitionTokens);
        values = take(PaddedValue(a) * kPartitionTokens);
        states = take(rows * PartialFloats(a));
        scores = take(kRowsAtOnce * kPartitionTokens);
        sums = take(kRowsAtOnce * PaddedValue(a));
        largest = take(16);
        weights = take(16);
        total = at - memory + kApartBytes / std::int64_t{sizeof(float)};
    }
};

}  // namespace tokenlight::cpu
