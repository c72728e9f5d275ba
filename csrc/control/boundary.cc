// SPDX-License-Identifier: Apache-2.0
#include "control/boundary.h"

#include <algorithm>
#include <cstddef>

namespace tokenlight::control {
namespace {

constexpr std::size_t kPrefetchAhead = 8;

// Can `group` resume after `num_blocks` blocks, given what it has of them?
bool CanResume(const CacheGroup& group, std::int32_t block_tokens, std::int32_t num_blocks,
               std::int32_t num_consecutive) {
    if (group.config.kind == GroupKind::kRecurrent) return num_consecutive > 0;
    return num_consecutive >=
           num_blocks - FirstLiveColumn(group.config, block_tokens, num_blocks * block_tokens);
}

}  // namespace

void FindBoundary(std::span<const CacheGroup> groups, std::int32_t block_tokens,
                  std::span<const Hash128> chain, Boundary& boundary) {
    boundary.num_blocks = 0;
    boundary.num_known_blocks = 0;
    boundary.last_known = PrefixIndex::kAbsent;
    boundary.found.resize(groups.size());
    for (auto& column : boundary.found) column.clear();
    // Per group: how many blocks in a row are cached up to here.
    std::vector<std::int32_t> num_consecutive(groups.size(), 0);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        const auto num_blocks = static_cast<std::int32_t>(i) + 1;
        bool can_resume = true;
        bool is_over = false;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            if (i + kPrefetchAhead < chain.size())
                groups[g].pool->Prefetch(chain[i + kPrefetchAhead]);
            const std::int32_t block = groups[g].pool->Find(chain[i]);
            boundary.found[g].push_back(block);
            num_consecutive[g] = block == PrefixIndex::kAbsent ? 0 : num_consecutive[g] + 1;
            is_over |= groups[g].config.kind == GroupKind::kFull && num_consecutive[g] < num_blocks;
            can_resume &= CanResume(groups[g], block_tokens, num_blocks, num_consecutive[g]);
        }
        if (num_consecutive[0] == num_blocks) {
            boundary.num_known_blocks = num_blocks;
            boundary.last_known = boundary.found[0].back();
        }
        if (is_over) return;
        if (can_resume) boundary.num_blocks = num_blocks;
    }
}

}  // namespace tokenlight::control
