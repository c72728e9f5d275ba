// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "control/config.h"
#include "control/request.h"

namespace tokenlight::control {

// Policy: pure functions, a file each. They see numbers and decide; they own and change nothing.

// Tokens of KV for which a request must find room before it is admitted.
std::int32_t TokensToReserve(const Config& config, const Request& request);

// May a running request be thrown out to make room?
bool MayBePreempted(const Config& config, const Request& request);
// Of two that may, does `a` go before `b`?
bool IsPreemptedBefore(const Request& a, const Request& b);

// What a step should compute of a prompt.
struct ChunkWish {
    std::int32_t num_computed_tokens = 0;
    std::int32_t num_prompt_tokens = 0;
    std::int32_t budget_tokens = 0;
    bool ends_at_blocks = false;  // a recurrent state can be kept only where a block ends
};
std::int32_t ChunkTokens(const Config& config, const ChunkWish& wish);

}  // namespace tokenlight::control
