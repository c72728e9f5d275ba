// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/hash.h"

namespace tokenlight::control {

enum class GroupKind : std::int32_t {
    kFull,           // every token attends to all before it
    kSlidingWindow,  // to the last window_tokens only
    kRecurrent,      // one state, overwritten as tokens pass; a block is a snapshot of it
};

// Layers that keep their KV alike form one cache group, with blocks of its own.
struct GroupConfig {
    GroupKind kind = GroupKind::kFull;
    std::int32_t num_blocks = 0;
    std::int32_t window_tokens = 0;  // of a sliding window; 0 otherwise
};

struct Config {
    std::vector<GroupConfig> groups;
    std::int32_t block_tokens = 0;
    std::int32_t max_num_requests = 0;
    std::int32_t max_step_tokens = 0;
    std::int32_t max_model_tokens = 0;
    bool prefix_reuse = true;
    HashKey hash_key{};
    std::int32_t overlap =
        0;  // steps that may be planned while an earlier one is not yet committed
    std::int32_t output_margin_tokens = 64;
    std::int32_t max_preemptions =
        3;  // of one request; then it is admitted with room to its end and left alone
    std::int32_t min_copy_tokens =
        0;  // shortest part of a block worth a copy; 0: parts are not reused
    std::int32_t max_events = 0;
    std::int32_t num_host_blocks =
        0;  // of the first group, when that is a full one; 0: no host tier

    [[nodiscard]] std::int32_t max_blocks_per_request() const {
        return (max_model_tokens + block_tokens - 1) / block_tokens;
    }
};

}  // namespace tokenlight::control
