// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/holdings.h"
#include "control/ledger.h"
#include "control/request.h"

namespace tokenlight::control {

// What happens to one request's run in one cache group as steps are planned and committed.

// Promises what is missing for tokens [0, upto_tokens). False, and nothing changed, when there is
// no room.
[[nodiscard]] bool TryPromise(GroupRun& run, CacheGroup& group, std::int32_t block_tokens,
                              std::int32_t upto_tokens);

// Takes what is missing; it must have been promised.
void TakeMissing(BlockRun& run, CacheGroup& group, SlotId slot, std::int32_t block_tokens,
                 std::int32_t upto_tokens, std::vector<TablePatch>& patches);

// The state's way through one step. When the step ends where a snapshot is wanted, its result is
// sealed: the next step will write elsewhere.
[[nodiscard]] StateBlocks StepState(StateRun& run, CacheGroup& group, std::int32_t upto_tokens,
                                    bool is_sealed);

// What publishing needs to know of a request; its blocks are final up to `num_tokens`.
struct Publication {
    const Request& request;
    SlotId slot;
    StepId last_step;
    std::int32_t block_tokens;
    std::int32_t num_tokens;
};

// Settles the full blocks. A block that another request published meanwhile is shared, and ours
// goes home.
void PublishBlocks(BlockRun& run, CacheGroup& group, const Publication& what, StepLedger& ledger,
                   std::vector<TablePatch>& patches);
void PublishSnapshots(StateRun& run, CacheGroup& group, const Publication& what,
                      StepLedger& ledger);

// Gives back the blocks that no query from `position` on can see.
void DropDeadBlocks(BlockRun& run, CacheGroup& group, std::int32_t block_tokens,
                    std::int32_t position);

}  // namespace tokenlight::control
