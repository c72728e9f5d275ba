// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/ids.h"

namespace tokenlight::control {

// A changed entry of a block table. A device keeps its own table and applies these in the order of
// the plans.
struct TablePatch {
    std::int32_t group;
    std::int32_t slot;
    std::int32_t column;
    std::int32_t block;
};

// Which block holds which tokens of which slot: int32[num_slots, num_columns], -1 where nothing is.
// It persists from step to step; only what changes is written.
class BlockTable {
  public:
    static constexpr std::int32_t kNothing = -1;

    BlockTable(std::int32_t group, std::int32_t num_slots, std::int32_t num_columns)
        : group_(group),
          num_columns_(num_columns),
          blocks_(static_cast<std::size_t>(num_slots) * static_cast<std::size_t>(num_columns),
                  kNothing) {}
    BlockTable(const BlockTable&) = delete;
    BlockTable& operator=(const BlockTable&) = delete;
    BlockTable(BlockTable&&) = default;

    void Set(SlotId slot, std::int32_t column, std::int32_t block,
             std::vector<TablePatch>& patches) {
        blocks_[Row(slot) + static_cast<std::size_t>(column)] = block;
        patches.push_back({group_, Raw(slot), column, block});
    }

    [[nodiscard]] std::int32_t at(SlotId slot, std::int32_t column) const {
        return blocks_[Row(slot) + static_cast<std::size_t>(column)];
    }
    [[nodiscard]] std::int32_t num_columns() const { return num_columns_; }
    [[nodiscard]] const std::int32_t* data() const { return blocks_.data(); }

  private:
    [[nodiscard]] std::size_t Row(SlotId slot) const {
        return static_cast<std::size_t>(Raw(slot)) * static_cast<std::size_t>(num_columns_);
    }

    std::int32_t group_;
    std::int32_t num_columns_;
    std::vector<std::int32_t> blocks_;
};

}  // namespace tokenlight::control
