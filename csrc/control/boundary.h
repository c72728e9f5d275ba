// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "control/hash.h"
#include "control/holdings.h"

namespace tokenlight::control {

// How much of a prompt the cache can serve, and from which blocks. Reused between calls.
struct Boundary {
    std::int32_t num_blocks = 0;        // the longest prefix from which every group can resume
    std::int32_t num_known_blocks = 0;  // the longest that group 0 alone knows
    std::int32_t last_known = -1;       // the block at its end; -1 when nothing is known
    std::vector<std::vector<std::int32_t>> found;  // [group][column], -1 where nothing is cached
};

// Looks along `chain`, which holds one key per block that may be served.
void FindBoundary(std::span<const CacheGroup> groups, std::int32_t block_tokens,
                  std::span<const Hash128> chain, Boundary& boundary);

}  // namespace tokenlight::control
