// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tokenlight::cpu {

// kI8: a row of whole numbers q, |q| <= 127, then the four bytes of the float32 that they are
// multiples of.
enum class FloatType { kF32, kF16, kBf16, kI8 };

// How a step's requests address the cache: plain views of the caller's arrays, which outlive the
// call.
struct PagedBatch {
    const std::int32_t* query_starts;  // [num_requests + 1]
    const std::int32_t* block_table;   // [num_slots, num_columns]
    const std::int32_t* slots;         // [num_requests]
    std::int64_t num_requests;
    std::int64_t num_slots;
    std::int64_t num_columns;   // of the table
    std::int64_t table_stride;  // elements between its rows
    std::int64_t num_tokens;
    std::int64_t num_blocks;
    std::int64_t block_tokens;

    const std::int32_t* Row(std::int64_t request) const {
        return block_table + slots[request] * table_stride;
    }
};

// Throw std::out_of_range when a start, slot, length, position or block would lead outside its
// table.
void CheckStarts(const PagedBatch& batch);
// Blocks for the tokens [first, last) of the request.
void CheckBlocks(const PagedBatch& batch, std::int64_t request, std::int64_t first,
                 std::int64_t last);

}  // namespace tokenlight::cpu
