// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "control/hash.h"
#include "control/ids.h"

namespace tokenlight::control {

enum class FinishReason : std::int32_t { kStop, kLength, kAbort, kDeadline };

enum class MissCause : std::int32_t {
    kNone,       // nothing was missed: the cache served all that can be served
    kNeverSeen,  // no published block continues the prompt this way
    kEvicted,    // it was cached and had to make room
    kSalt,       // it is cached under another salt or adapter
    kReuseOff,
    kNotAdmitted,
};

// Why a prompt was served from the cache as far as it was.
struct Explanation {
    std::int32_t num_prompt_tokens = 0;
    std::int32_t num_cached_tokens = 0;
    std::int32_t first_divergent_token = 0;  // equal to num_prompt_tokens when none diverged
    MissCause cause = MissCause::kNotAdmitted;
    std::int32_t num_preemptions = 0;
};

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

// Lower runs first; earlier among equals.
struct QueueKey {
    std::int32_t priority = 0;
    std::int64_t arrival = 0;
    friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

// What is known of a request in every state. Holds no block.
struct Request {
    RequestId id{};
    QueueKey key;
    std::vector<std::int32_t> token_ids;  // the prompt, then what was sampled
    std::int32_t num_prompt_tokens = 0;
    std::int32_t max_new_tokens = 0;
    std::vector<std::int32_t> stop_token_ids;
    std::int64_t deadline_us = kNoDeadline;
    Hash128 seed;
    std::vector<Hash128> chain;  // key of each full block, computed once
    std::vector<std::int32_t> draft_ids;
    std::optional<std::int32_t> num_cached_tokens;  // set when first admitted
    Explanation explanation;
    std::int32_t num_preemptions = 0;

    [[nodiscard]] std::int32_t num_tokens() const {
        return static_cast<std::int32_t>(token_ids.size());
    }
    [[nodiscard]] std::int32_t num_sampled() const { return num_tokens() - num_prompt_tokens; }
    // Tokens whose KV is needed in the end: the last one sampled is never fed back.
    [[nodiscard]] std::int32_t max_kv_tokens() const {
        return num_prompt_tokens + max_new_tokens - 1;
    }
};

}  // namespace tokenlight::control
