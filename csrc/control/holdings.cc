// SPDX-License-Identifier: Apache-2.0
#include "control/holdings.h"

#include <algorithm>

#include "control/mutants.h"

namespace tokenlight::control {

std::int32_t FirstLiveColumn(const GroupConfig& group, std::int32_t block_tokens,
                             std::int32_t position) {
    if (group.kind != GroupKind::kSlidingWindow) return 0;
    const std::int32_t window = group.window_tokens - (IsPlanted(Mutant::kWindowTooShort) ? 1 : 0);
    return std::max(0, position - window + 1) / block_tokens;
}

std::int32_t MaxLiveBlocks(const GroupConfig& group, const Config& config,
                           std::int32_t num_tokens) {
    const std::int32_t columns = CeilDiv(num_tokens, config.block_tokens);
    switch (group.kind) {
        case GroupKind::kFull:
            return columns;
        case GroupKind::kSlidingWindow: {
            const std::int32_t ahead = config.max_step_tokens * (config.overlap + 1);
            return std::min(columns, (group.window_tokens + ahead - 2) / config.block_tokens + 2);
        }
        case GroupKind::kRecurrent:
            return config.overlap + 2;
    }
    __builtin_unreachable();
}

std::int32_t MissingBlocks(const GroupRun& run, std::int32_t block_tokens,
                           std::int32_t upto_tokens) {
    if (const auto* blocks = std::get_if<BlockRun>(&run)) {
        return std::max(0, CeilDiv(upto_tokens, block_tokens) - blocks->num_columns());
    }
    return std::get<StateRun>(run).working ? 0 : 1;
}

}  // namespace tokenlight::control
