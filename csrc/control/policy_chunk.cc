// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "control/mutants.h"
#include "control/policy.h"

namespace tokenlight::control {

std::int32_t ChunkTokens(const Config& config, const ChunkWish& wish) {
    const std::int32_t start = wish.num_computed_tokens;
    const std::int32_t rest = wish.num_prompt_tokens - start;
    const std::int32_t chunk =
        IsPlanted(Mutant::kBudgetIgnored) ? rest : std::min(rest, wish.budget_tokens);
    if (!wish.ends_at_blocks) return chunk;
    const std::int32_t aligned_end = (start + chunk) / config.block_tokens * config.block_tokens;
    return aligned_end > start ? aligned_end - start : chunk;
}

}  // namespace tokenlight::control
