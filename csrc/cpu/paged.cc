// SPDX-License-Identifier: Apache-2.0
#include "cpu/paged.h"

#include <stdexcept>
#include <string>

namespace tokenlight::cpu {
namespace {

[[noreturn]] void Refuse(const std::string& what, std::int64_t value, std::int64_t limit) {
    throw std::out_of_range(what + " is " + std::to_string(value) + ", but must be in [0, " +
                            std::to_string(limit) + ")");
}

}  // namespace

void CheckStarts(const PagedBatch& batch) {
    std::int32_t before = 0;
    for (std::int64_t r = 0; r <= batch.num_requests; ++r) {
        const std::int32_t start = batch.query_starts[r];
        if (start < before || start > batch.num_tokens) {
            Refuse("query_starts[" + std::to_string(r) + "]", start, batch.num_tokens + 1);
        }
        before = start;
    }
    if (batch.query_starts[0] != 0 || before != batch.num_tokens) {
        throw std::out_of_range("query_starts must run from 0 to the number of tokens, " +
                                std::to_string(batch.num_tokens));
    }
    for (std::int64_t r = 0; r < batch.num_requests; ++r) {
        if (batch.slots[r] < 0 || batch.slots[r] >= batch.num_slots) {
            Refuse("slots[" + std::to_string(r) + "]", batch.slots[r], batch.num_slots);
        }
    }
}

void CheckBlocks(const PagedBatch& batch, std::int64_t request, std::int64_t first,
                 std::int64_t last) {
    if (first < 0 || last > batch.num_columns * batch.block_tokens) {
        Refuse("the last position of request " + std::to_string(request), last - 1,
               batch.num_columns * batch.block_tokens);
    }
    const std::int32_t* row = batch.Row(request);
    const std::int64_t end = (last + batch.block_tokens - 1) / batch.block_tokens;
    for (std::int64_t column = first / batch.block_tokens; column < end; ++column) {
        if (row[column] < 0 || row[column] >= batch.num_blocks) {
            Refuse("block " + std::to_string(column) + " of request " + std::to_string(request),
                   row[column], batch.num_blocks);
        }
    }
}

}  // namespace tokenlight::cpu
