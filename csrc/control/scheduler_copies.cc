// SPDX-License-Identifier: Apache-2.0
// Copies between the tiers: what is published is offered to the host; what a prompt finds there is
// loaded.
#include <algorithm>
#include <optional>
#include <utility>

#include "control/mutants.h"
#include "control/runs.h"
#include "control/scheduler.h"

namespace tokenlight::control {
namespace {

constexpr std::size_t kMaxStoresPerCopy = 64;

}  // namespace

// The prompt goes on in host blocks where the device's end: they are loaded into blocks of its own.
bool Scheduler::TryLoad(SlotId slot) {
    if (host_ == nullptr || groups_.size() > 1) return false;
    Prefilling& prefilling = *prefilling_.Find(slot);
    Resident& resident = prefilling.resident;
    const Request& request = *resident.request;
    const auto num_servable =
        static_cast<std::size_t>((request.num_tokens() - 1) / config_.block_tokens);
    const auto num_cached =
        static_cast<std::size_t>(resident.progress.num_computed / config_.block_tokens);
    std::vector<HostShared> sources;
    while (num_cached + sources.size() < std::min(num_servable, request.chain.size())) {
        const std::int32_t block = host_->Find(request.chain[num_cached + sources.size()]);
        if (block == PrefixIndex::kAbsent) break;
        std::optional<HostShared> source = host_->TryShare(block);
        if (!source) break;
        sources.push_back(std::move(*source));
    }
    if (sources.empty()) return false;
    const auto num_blocks = static_cast<std::int32_t>(num_cached + sources.size());
    TakeMissing(std::get<BlockRun>(resident.holdings.runs[0]), groups_[0], slot,
                config_.block_tokens, num_blocks * config_.block_tokens, patches_);
    loading_.Put(Load(prefilling_.Take(slot), std::move(sources)));
    return true;
}

CopyGuard Scheduler::PlanCopies(CopyPlan& plan) {
    plan.rows.clear();
    if (host_ == nullptr) return {};
    const auto& slots = loading_.order();
    const auto waiting =
        std::ranges::find_if(slots, [&](SlotId slot) { return !loading_.Find(slot)->copy; });
    if (waiting == slots.end() && unstored_.empty()) return {};
    CopyGuard guard = copies_.Begin();
    if (waiting != slots.end()) {
        PlanLoad(*loading_.Find(*waiting), guard.copy(), plan);
    } else {
        PlanStores(copies_.at(guard.copy()), plan);
    }
    if (plan.rows.empty()) {
        const CopyReceipt nothing = copies_.Return(std::move(guard));
        [[maybe_unused]] const OpenCopy closed = copies_.Close(nothing);
        return {};
    }
    return guard;
}

void Scheduler::PlanLoad(Loading& loading, CopyId copy, CopyPlan& plan) {
    loading.copy = copy;
    const auto& run = std::get<BlockRun>(loading.resident.holdings.runs[0]);
    for (std::size_t i = 0; i < loading.sources.size(); ++i) {
        plan.rows.push_back({0, Raw(run.open[i].id()), Raw(loading.sources[i].id())});
    }
}

void Scheduler::PlanStores(OpenCopy& open, CopyPlan& plan) {
    std::size_t num_seen = 0;
    for (; num_seen < unstored_.size() && plan.rows.size() < kMaxStoresPerCopy; ++num_seen) {
        const Hash128& key = unstored_[num_seen];
        const std::int32_t block = groups_[0].pool->Find(key);
        if (block == PrefixIndex::kAbsent || host_->Find(key) != PrefixIndex::kAbsent) continue;
        std::optional<Reservation<Tier::kHost>> promise = host_->TryReserve(1);
        std::optional<DeviceShared> from = groups_[0].pool->TryShare(block);
        if (!promise || !from) continue;  // no room on a tier: this block is simply not stored
        HostExclusive to = host_->Claim(host_->Take(*promise));
        plan.rows.push_back({1, Raw(from->id()), Raw(to.id())});
        open.stores.push_back({InCopy<DeviceShared>(std::move(*from)),
                               InCopy<HostExclusive>(std::move(to)), key, Hash128{}});
    }
    unstored_.erase(unstored_.begin(), unstored_.begin() + static_cast<std::ptrdiff_t>(num_seen));
}

Fault Scheduler::CheckCopy(const CopyGuard& guard) const {
    if (is_broken()) return Fault::kStepBroken;
    if (guard.BelongsTo(copies_)) return Fault::kNone;
    return guard.is_live() ? Fault::kGuardForeign : Fault::kGuardCommitted;
}

void Scheduler::Commit(CopyGuard&& guard, bool has_succeeded) {
    const CopyReceipt receipt = copies_.Return(std::move(guard));
    OpenCopy closed = copies_.Close(receipt);
    // From the end, as every owner returns a prefix.
    for (; !closed.stores.empty(); closed.stores.pop_back()) {
        Store& store = closed.stores.back();
        [[maybe_unused]] const DeviceShared from = Land(std::move(store.from), receipt);
        HostExclusive to = Land(std::move(store.to), receipt);
        const bool is_known = host_->Find(store.key) != PrefixIndex::kAbsent;
        if (is_known || (!has_succeeded && !IsPlanted(Mutant::kFailedCopyPublished))) continue;
        [[maybe_unused]] const HostShared cached =
            host_->Publish(std::move(to), {.key = store.key,
                                           .parent_key = store.parent_key,
                                           .parent = HostPool::kNone,
                                           .seed = 0,
                                           .token_ids = {}});
    }
    for (const SlotId slot : loading_.order()) {
        if (loading_.Find(slot)->copy != receipt.copy()) continue;
        FinishLoad(slot, receipt, has_succeeded);
        break;
    }
}

void Scheduler::FinishLoad(SlotId slot, const CopyReceipt& receipt, bool has_succeeded) {
    const auto num_loaded = static_cast<std::int32_t>(loading_.Find(slot)->sources.size());
    Resident& resident = prefilling_.Put(Loaded(loading_.Take(slot), receipt)).resident;
    const std::int32_t num_before = resident.progress.num_computed;
    if (has_succeeded || IsPlanted(Mutant::kFailedCopyPublished)) {
        resident.progress.num_computed = num_before + num_loaded * config_.block_tokens;
        resident.progress.num_planned = resident.progress.num_computed;
        Publish(resident);
    }
    if (resident.request->num_preemptions > 0) return;  // counted when it came first
    const std::int32_t num_more = resident.progress.num_computed - num_before;
    *resident.request->num_cached_tokens += num_more;
    resident.request->explanation.num_cached_tokens += num_more;
    totals_.num_cached_tokens += num_more;
}

}  // namespace tokenlight::control
