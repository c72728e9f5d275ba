// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/block.h"
#include "control/table.h"

namespace tokenlight::control {

// Tokens to copy from the head of one block to the head of another before the step's forward runs.
struct BlockCopy {
    std::int32_t from_block;
    std::int32_t to_block;
    std::int32_t num_tokens;
};
// Reads what nobody writes, writes what nobody else reads.
inline BlockCopy MakeCopy(const DeviceShared& from, const DeviceExclusive& to,
                          std::int32_t num_tokens) {
    return {Raw(from.id()), Raw(to.id()), num_tokens};
}

// What the runner executes next: decodes first, then prefill chunks. Buffers are reused, so that a
// step allocates nothing.
struct StepPlan {
    static constexpr std::int32_t kOnDevice = -1;

    std::vector<std::int64_t> request_ids;
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t>
        token_ids;  // kOnDevice: the last id sampled for this slot, not yet on the host
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> query_starts;
    std::vector<std::int32_t> kv_lens;
    std::vector<std::int32_t> sampled_rows;
    std::vector<std::int32_t> sampled_requests;
    std::vector<std::int32_t>
        state_blocks;  // [requests, recurrent groups, (read, write)]; reads -1: from zero
    std::vector<BlockCopy> copies;
    std::vector<TablePatch> patches;

    [[nodiscard]] std::int32_t num_requests() const {
        return static_cast<std::int32_t>(slots.size());
    }
    [[nodiscard]] std::int32_t num_tokens() const {
        return static_cast<std::int32_t>(token_ids.size());
    }
    [[nodiscard]] std::int32_t num_sampled() const {
        return static_cast<std::int32_t>(sampled_rows.size());
    }

    void Clear() {
        for (auto* column : {&slots, &token_ids, &positions, &query_starts, &kv_lens, &sampled_rows,
                             &sampled_requests, &state_blocks}) {
            column->clear();
        }
        request_ids.clear();
        copies.clear();
        patches.clear();
        query_starts.push_back(0);
    }
};

}  // namespace tokenlight::control
