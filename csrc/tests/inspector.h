// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/scheduler.h"

namespace tokenlight::control {

// Reads what a scheduler keeps to itself, for tests: who owns which block, and a name for its
// state.
struct Inspector {
    const Scheduler& scheduler;

    using Pool = DevicePool;
    using Record = DevicePool::Record;

    [[nodiscard]] const Pool& pool(std::size_t group) const {
        return *scheduler.groups_[group].pool;
    }
    [[nodiscard]] static const Record& record(const Pool& pool, std::int32_t block) {
        return pool.at(block);
    }
    [[nodiscard]] static std::int32_t promised(const Pool& pool) { return pool.num_promised_; }
    [[nodiscard]] static std::int32_t first_child(const Pool& pool, std::int32_t block) {
        return pool.at(block).first_child;
    }
    // From the one that is taken next to the one that is taken last.
    [[nodiscard]] static std::vector<std::int32_t> FreeList(const Pool& pool) {
        std::vector<std::int32_t> blocks;
        for (std::int32_t block = pool.at(pool.sentinel()).next; block != pool.sentinel();
             block = pool.at(block).next) {
            blocks.push_back(block);
            if (blocks.size() > static_cast<std::size_t>(pool.num_blocks()))
                break;  // a loop: a fault
        }
        return blocks;
    }

    void EachResident(const std::function<void(const Resident&, char state)>& visit) const {
        for (const SlotId slot : scheduler.prefilling_.order()) {
            visit(scheduler.prefilling_.Find(slot)->resident, 'p');
        }
        for (const SlotId slot : scheduler.loading_.order()) {
            visit(scheduler.loading_.Find(slot)->resident, 'l');
        }
        for (const SlotId slot : scheduler.decoding_.order()) {
            visit(scheduler.decoding_.Find(slot)->resident, 'd');
        }
    }
    void EachWaiting(const std::function<void(const Request&)>& visit) const {
        for (const auto& [key, waiting] : scheduler.waiting_) visit(*waiting.request);
    }
    [[nodiscard]] const std::optional<Scheduler::Blockage>& blockage() const {
        return scheduler.blockage_;
    }
    [[nodiscard]] const std::vector<SlotId>& free_slots() const { return scheduler.slots_.free_; }

    using EachBlock = std::function<void(std::size_t group, std::int32_t block, bool is_shared)>;
    static void EachBlockOf(const Holdings& holdings, const EachBlock& visit) {
        for (std::size_t g = 0; g < holdings.runs.size(); ++g) {
            if (const auto* run = std::get_if<BlockRun>(&holdings.runs[g])) {
                for (std::size_t i = static_cast<std::size_t>(run->num_dead);
                     i < run->settled.size(); ++i) {
                    visit(g, Raw(run->settled[i].id()), true);
                }
                for (const auto& block : run->open) visit(g, Raw(block.id()), false);
            } else {
                const auto& state = std::get<StateRun>(holdings.runs[g]);
                for (const Snapshot& snapshot : state.snapshots) {
                    std::visit(
                        [&](const auto& b) { visit(g, Raw(b.id()), snapshot.block.index() == 1); },
                        snapshot.block);
                }
                if (state.working) visit(g, Raw(state.working->id()), false);
            }
        }
    }
    static std::int32_t PromiseOf(const Holdings& holdings, std::size_t group) {
        return std::visit([](const auto& run) { return run.promise.num_blocks(); },
                          holdings.runs[group]);
    }

    [[nodiscard]] const HostPool* host() const { return scheduler.host_.get(); }
    [[nodiscard]] const std::vector<Hash128>& unstored() const { return scheduler.unstored_; }
    [[nodiscard]] static const HostPool::Record& host_record(const HostPool& pool,
                                                             std::int32_t block) {
        return pool.at(block);
    }
    [[nodiscard]] static std::vector<std::int32_t> HostFreeList(const HostPool& pool) {
        std::vector<std::int32_t> blocks;
        for (std::int32_t block = pool.at(pool.sentinel()).next; block != pool.sentinel();
             block = pool.at(block).next) {
            blocks.push_back(block);
        }
        return blocks;
    }
    void EachLoading(const std::function<void(const Loading&)>& visit) const {
        for (const SlotId slot : scheduler.loading_.order()) visit(*scheduler.loading_.Find(slot));
    }
    void EachCopy(const std::function<void(CopyId)>& copy, const EachBlock& device,
                  const EachBlock& host, const std::function<void(const Holdings&)>& holdings,
                  const std::function<void(SlotId)>& slot) const {
        for (const auto& [id, open] : scheduler.copies_.open_) {
            copy(id);
            for (const Store& store : open.stores) {
                device(0, Raw(store.from.resource_.id()), true);
                host(0, Raw(store.to.resource_.id()), false);
            }
            for (const auto& item : open.sources) {
                for (const HostShared& source : item.resource_) host(0, Raw(source.id()), true);
            }
            for (const auto& item : open.holdings) holdings(item.resource_);
            for (const auto& item : open.slots) slot(item.resource_.id());
        }
    }

    // What outlives its request until a step is back, oldest step first.
    void EachRetired(const std::function<void(std::int64_t step, const Holdings&)>& holdings,
                     const EachBlock& single,
                     const std::function<void(std::int64_t step, SlotId)>& slot) const {
        const StepLedger& ledger = scheduler.ledger_;
        for (std::int64_t step = ledger.oldest_; step < ledger.next_; ++step) {
            const auto& bags = ledger.at(step).bags;
            for (const auto& item : std::get<0>(bags)) holdings(step, item.resource_);
            for (const auto& item : std::get<1>(bags)) slot(step, item.resource_.id());
            for (const auto& item : std::get<2>(bags))
                single(GroupOf(item.resource_), Raw(item.resource_.id()), false);
            for (const auto& item : std::get<3>(bags))
                single(GroupOf(item.resource_), Raw(item.resource_.id()), true);
        }
    }
    template <typename Block>
    [[nodiscard]] std::size_t GroupOf(const Block& block) const {
        std::size_t group = 0;
        while (scheduler.groups_[group].pool != block.pool_) ++group;
        return group;
    }
    void EachRow(const std::function<void(std::int64_t step, const StepRow&,
                                          std::span<const std::int32_t> drafts)>& visit) const {
        const StepLedger& ledger = scheduler.ledger_;
        for (std::int64_t step = ledger.oldest_; step < ledger.next_; ++step) {
            const std::span<const std::int32_t> drafts(ledger.at(step).draft_ids);
            for (const StepRow& row : ledger.at(step).rows) {
                const auto num_drafts = static_cast<std::size_t>(std::max(0, row.num_samples - 1));
                visit(step, row,
                      drafts.subspan(static_cast<std::size_t>(row.first_draft), num_drafts));
            }
        }
    }
};

}  // namespace tokenlight::control
