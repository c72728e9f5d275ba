// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "control/block.h"
#include "control/config.h"
#include "control/pool.h"
#include "control/table.h"

namespace tokenlight::control {

// One request's blocks in a group of attention layers, by column: settled ones first (shared, or
// hollow where a window has passed), then open ones, which this request alone may write.
struct BlockRun {
    std::vector<DeviceShared> settled;
    std::vector<DeviceExclusive> open;
    std::int32_t num_dead = 0;  // hollow columns at the front
    Reservation<Tier::kDevice> promise;

    explicit BlockRun(Reservation<Tier::kDevice>&& promised) : promise(std::move(promised)) {}
    BlockRun(BlockRun&&) = default;
    BlockRun& operator=(BlockRun&&) = default;
    // From the end, so that a prefix is evicted from its end.
    ~BlockRun() {
        while (!open.empty()) open.pop_back();
        while (!settled.empty()) settled.pop_back();
    }

    [[nodiscard]] std::int32_t num_columns() const {
        return static_cast<std::int32_t>(settled.size() + open.size());
    }
};

// A recurrent state as it was after `num_tokens` tokens; nothing writes to it any more.
struct Snapshot {
    std::int32_t num_tokens;
    std::variant<DeviceExclusive, DeviceShared> block;
};

// One request's state in a group of recurrent layers. A step reads one block and writes one: the
// same while the state moves on, another when the state it starts from is kept as a snapshot.
struct StateRun {
    std::vector<Snapshot> snapshots;  // oldest first; at most one that is computed
    std::optional<DeviceExclusive> working;
    Reservation<Tier::kDevice> promise;

    explicit StateRun(Reservation<Tier::kDevice>&& promised) : promise(std::move(promised)) {}
};

using GroupRun = std::variant<BlockRun, StateRun>;

// Everything that a running request holds, a run per cache group. Given back by leaving its scope.
struct Holdings {
    std::vector<GroupRun> runs;
};

// One cache group of the model: where its blocks are and who is told about them.
struct CacheGroup {
    GroupConfig config;
    DevicePool* pool;
    BlockTable table;
};

struct StateBlocks {
    std::int32_t read;
    std::int32_t write;
};

// The first column that a query at `position` can still see.
std::int32_t FirstLiveColumn(const GroupConfig& group, std::int32_t block_tokens,
                             std::int32_t position);

// Most blocks that a request of `num_tokens` ever holds at once in this group.
std::int32_t MaxLiveBlocks(const GroupConfig& group, const Config& config, std::int32_t num_tokens);

// How many blocks must be taken before tokens [0, upto_tokens) can be computed.
std::int32_t MissingBlocks(const GroupRun& run, std::int32_t block_tokens,
                           std::int32_t upto_tokens);

}  // namespace tokenlight::control
