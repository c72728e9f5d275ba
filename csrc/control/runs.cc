// SPDX-License-Identifier: Apache-2.0
#include "control/runs.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "control/mutants.h"

namespace tokenlight::control {
namespace {

std::span<const std::int32_t> BlockTokens(const Publication& what, std::int32_t column) {
    return std::span(what.request.token_ids)
        .subspan(static_cast<std::size_t>(column) * static_cast<std::size_t>(what.block_tokens),
                 static_cast<std::size_t>(what.block_tokens));
}

const Hash128& KeyOf(const Publication& what, std::int32_t column) {
    return column < 0 ? what.request.seed : what.request.chain[static_cast<std::size_t>(column)];
}

BlockName NameOf(const Publication& what, std::int32_t column, std::int32_t parent) {
    return {.key = KeyOf(what, column),
            .parent_key = KeyOf(what, column - 1),
            .parent = parent,
            .seed = what.request.seed.low,
            .token_ids = BlockTokens(what, column)};
}

std::int32_t ParentOf(const BlockRun& run, const CacheGroup& group, std::int32_t column) {
    if (column == 0 || group.config.kind != GroupKind::kFull) return DevicePool::kNone;
    return Raw(run.settled.back().id());
}

std::int32_t IdOf(const Snapshot& snapshot) {
    return std::visit([](const auto& block) { return Raw(block.id()); }, snapshot.block);
}

}  // namespace

bool TryPromise(GroupRun& run, CacheGroup& group, std::int32_t block_tokens,
                std::int32_t upto_tokens) {
    const std::int32_t missing = MissingBlocks(run, block_tokens, upto_tokens);
    return std::visit(
        [&](auto& any) {
            if (missing <= any.promise.num_blocks()) return true;
            auto more = group.pool->TryReserve(missing - any.promise.num_blocks());
            if (!more) return false;
            any.promise.Merge(std::move(*more));
            return true;
        },
        run);
}

void TakeMissing(BlockRun& run, CacheGroup& group, SlotId slot, std::int32_t block_tokens,
                 std::int32_t upto_tokens, std::vector<TablePatch>& patches) {
    const std::int32_t num_columns = CeilDiv(upto_tokens, block_tokens);
    for (std::int32_t column = run.num_columns(); column < num_columns; ++column) {
        run.open.push_back(group.pool->Claim(group.pool->Take(run.promise)));
        group.table.Set(slot, column, Raw(run.open.back().id()), patches);
    }
}

StateBlocks StepState(StateRun& run, CacheGroup& group, std::int32_t upto_tokens, bool is_sealed) {
    StateBlocks blocks{BlockTable::kNothing, BlockTable::kNothing};
    if (run.working) {
        blocks.read = Raw(run.working->id());
    } else {
        if (!run.snapshots.empty()) blocks.read = IdOf(run.snapshots.back());
        run.working.emplace(group.pool->Claim(group.pool->Take(run.promise)));
    }
    blocks.write = Raw(run.working->id());
    if (is_sealed) {
        run.snapshots.push_back({upto_tokens, std::move(*run.working)});
        run.working.reset();
    }
    return blocks;
}

void PublishBlocks(BlockRun& run, CacheGroup& group, const Publication& what, StepLedger& ledger,
                   std::vector<TablePatch>& patches) {
    const std::int32_t num_full =
        IsPlanted(Mutant::kPublishPartial)
            ? std::min(CeilDiv(what.num_tokens, what.block_tokens),
                       static_cast<std::int32_t>(what.request.chain.size()))
            : what.num_tokens / what.block_tokens;
    std::size_t num_settled = 0;
    for (auto column = static_cast<std::int32_t>(run.settled.size());
         column < num_full && num_settled < run.open.size(); ++column) {
        const Hash128& key = KeyOf(what, column);
        DeviceExclusive& block = run.open[num_settled];
        const std::int32_t twin = group.pool->Find(key);
        if (twin == PrefixIndex::kAbsent) {
            run.settled.push_back(group.pool->Publish(
                std::move(block), NameOf(what, column, ParentOf(run, group, column))));
        } else {
            std::optional<DeviceShared> shared = group.pool->TryShare(twin);
            if (!shared) break;  // no room to wake a cold block; the next commit tries again
            run.settled.push_back(std::move(*shared));
            ledger.Retire(what.last_step, std::move(block));
            group.table.Set(what.slot, column, twin, patches);
        }
        ++num_settled;
    }
    run.open.erase(run.open.begin(), run.open.begin() + static_cast<std::ptrdiff_t>(num_settled));
}

void PublishSnapshots(StateRun& run, CacheGroup& group, const Publication& what,
                      StepLedger& ledger) {
    std::size_t num_computed = 0;
    for (Snapshot& snapshot : run.snapshots) {
        if (snapshot.num_tokens > what.num_tokens) break;
        ++num_computed;
        auto* block = std::get_if<DeviceExclusive>(&snapshot.block);
        const std::int32_t column = snapshot.num_tokens / what.block_tokens - 1;
        const Hash128& key = KeyOf(what, column);
        if (block == nullptr || group.pool->Find(key) != PrefixIndex::kAbsent) continue;
        DeviceShared published =
            group.pool->Publish(std::move(*block), NameOf(what, column, DevicePool::kNone));
        snapshot.block = std::move(published);
    }
    // Only the newest computed one can still be started from.
    for (; num_computed > 1; --num_computed) {
        std::visit([&](auto& block) { ledger.Retire(what.last_step, std::move(block)); },
                   run.snapshots.front().block);
        run.snapshots.erase(run.snapshots.begin());
        if (auto again = group.pool->TryReserve(1)) run.promise.Merge(std::move(*again));
    }
}

void DropDeadBlocks(BlockRun& run, CacheGroup& group, std::int32_t block_tokens,
                    std::int32_t position) {
    const std::int32_t first_live = FirstLiveColumn(group.config, block_tokens, position);
    for (; run.num_dead < first_live; ++run.num_dead) {
        const auto column = static_cast<std::size_t>(run.num_dead);
        if (column < run.settled.size()) {
            [[maybe_unused]] const DeviceShared gone = std::move(run.settled[column]);
        } else if (!run.open.empty()) {  // not published: reuse is off
            run.open.erase(run.open.begin());
            run.settled.push_back(DeviceShared::Hollow());
        } else {
            return;
        }
        if (auto again = group.pool->TryReserve(1)) run.promise.Merge(std::move(*again));
    }
}

}  // namespace tokenlight::control
