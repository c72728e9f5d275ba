// SPDX-License-Identifier: Apache-2.0
// Admission: who enters the batch, what is reserved for him, and what the cache serves him.
#include <algorithm>
#include <optional>
#include <utility>

#include "control/mutants.h"
#include "control/policy.h"
#include "control/runs.h"
#include "control/scheduler.h"

namespace tokenlight::control {

// The first of the queue enters, or nobody does: passing him would let a stream of small ones
// starve him.
std::optional<SlotId> Scheduler::TryAdmit(StepPlan& plan) {
    if (waiting_.empty() || slots_.is_empty()) return std::nullopt;
    const auto head = waiting_.begin();
    if (IsStillBlocked(head->first)) return std::nullopt;
    Request& request = *head->second.request;

    const std::int32_t num_last =
        request.num_tokens() - (IsPlanted(Mutant::kReuseWholePrompt) ? 0 : 1);
    const auto num_servable = static_cast<std::size_t>(num_last / config_.block_tokens);
    FindBoundary(groups_, config_.block_tokens,
                 std::span(request.chain).first(std::min(request.chain.size(), num_servable)),
                 boundary_);
    std::optional<Holdings> holdings = TryHold(request);
    if (!holdings) return std::nullopt;

    blockage_.reset();
    const NearestBlock nearest = FindNearest(request);
    Waiting from = std::move(head->second);
    waiting_.erase(head);
    std::optional<SlotLease> slot = slots_.TryLease();
    places_[request.id] = slot->id();
    std::int32_t num_cached_tokens = boundary_.num_blocks * config_.block_tokens;
    Resident& resident =
        prefilling_
            .Put(Admit(std::move(from), std::move(*slot), std::move(*holdings), num_cached_tokens))
            .resident;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const auto* run = std::get_if<BlockRun>(&resident.holdings.runs[g]);
        if (run == nullptr) continue;
        for (std::int32_t column = run->num_dead; column < boundary_.num_blocks; ++column) {
            groups_[g].table.Set(resident.slot.id(), column,
                                 Raw(run->settled[static_cast<std::size_t>(column)].id()),
                                 patches_);
        }
    }
    const SlotId id = resident.slot.id();
    const bool is_loading = TryLoad(id);
    if (!is_loading) num_cached_tokens += CopyPart(resident, nearest, plan);
    Account(request, num_cached_tokens, nearest);
    return id;
}

bool Scheduler::IsStillBlocked(const QueueKey& key) const {
    if (!blockage_ || blockage_->key != key) return false;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].pool->num_unpromised() < blockage_->num_needed[g]) return true;
    }
    return false;
}

// Unpromised blocks that must be there: for what will be computed, and for what is woken from the
// cache.
std::int32_t Scheduler::PromiseFor(const CacheGroup& group, const Request& request,
                                   std::span<const std::int32_t> found) const {
    const auto num_cold = static_cast<std::int32_t>(std::ranges::count_if(
        found, [&](std::int32_t block) { return group.pool->IsCold(block); }));
    const std::int32_t num_live =
        MaxLiveBlocks(group.config, config_, TokensToReserve(config_, request));
    const auto num_hits = static_cast<std::int32_t>(found.size());
    if (group.config.kind == GroupKind::kFull) return num_live - num_hits + num_cold;
    // Here what is shared is dropped later and replaced: a request that must not fail again gets
    // its full need.
    const bool is_protected = request.num_preemptions >= config_.max_preemptions;
    return std::max(0, num_live - (is_protected ? num_cold : num_hits)) + num_cold;
}

std::optional<Holdings> Scheduler::TryHold(const Request& request) {
    const auto num_blocks = static_cast<std::size_t>(boundary_.num_blocks);
    Holdings holdings;
    holdings.runs.reserve(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const std::int32_t num_dead = NumDroppedColumns(groups_[g].config);
        auto& found = boundary_.found[g];
        found.resize(num_blocks);
        found.erase(found.begin(), found.begin() + num_dead);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        auto promise =
            groups_[g].pool->TryReserve(PromiseFor(groups_[g], request, boundary_.found[g]));
        if (!promise) {
            NoteBlockage(request);
            return std::nullopt;
        }
        if (groups_[g].config.kind == GroupKind::kRecurrent) {
            holdings.runs.emplace_back(StateRun(std::move(*promise)));
        } else {
            holdings.runs.emplace_back(BlockRun(std::move(*promise)));
        }
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        ShareFound(holdings.runs[g], groups_[g], boundary_.found[g]);
        if (auto* run = std::get_if<BlockRun>(&holdings.runs[g])) {
            const auto num_columns =
                static_cast<std::size_t>(CeilDiv(request.max_kv_tokens(), config_.block_tokens));
            run->settled.reserve(num_columns);
            run->open.reserve(std::min(
                num_columns,
                static_cast<std::size_t>(CeilDiv(config_.max_step_tokens, config_.block_tokens)) +
                    2));
        }
    }
    return holdings;
}

// In a window's group only the last few blocks of a prefix are live; of a state's, only the last
// snapshot.
std::int32_t Scheduler::NumDroppedColumns(const GroupConfig& group) const {
    const std::int32_t num_blocks = boundary_.num_blocks;
    if (group.kind == GroupKind::kRecurrent) return std::max(0, num_blocks - 1);
    return FirstLiveColumn(group, config_.block_tokens, num_blocks * config_.block_tokens);
}

void Scheduler::NoteBlockage(const Request& request) {
    Blockage blockage{.key = request.key, .num_needed = {}, .wanted = {}};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        blockage.num_needed.push_back(PromiseFor(groups_[g], request, boundary_.found[g]));
    }
    const auto first_missing = static_cast<std::size_t>(boundary_.num_blocks);
    if (first_missing < request.chain.size()) blockage.wanted = request.chain[first_missing];
    blockage_ = std::move(blockage);
}

void Scheduler::ShareFound(GroupRun& run, CacheGroup& group, std::span<const std::int32_t> found) {
    const auto share = [&](std::int32_t block, Reservation<Tier::kDevice>& promise) {
        return group.pool->IsCold(block) ? group.pool->ShareCold(block, promise)
                                         : group.pool->ShareWarm(block);
    };
    if (auto* state = std::get_if<StateRun>(&run)) {
        for (const std::int32_t block : found) {
            state->snapshots.push_back(
                {boundary_.num_blocks * config_.block_tokens, share(block, state->promise)});
        }
        return;
    }
    auto& blocks = std::get<BlockRun>(run);
    blocks.num_dead = boundary_.num_blocks - static_cast<std::int32_t>(found.size());
    for (std::int32_t i = 0; i < blocks.num_dead; ++i)
        blocks.settled.push_back(DeviceShared::Hollow());
    for (const std::int32_t block : found) blocks.settled.push_back(share(block, blocks.promise));
}

// Where the prompt parts from what is cached: the nearest block that continues the prefix that is
// known.
NearestBlock Scheduler::FindNearest(const Request& request) const {
    if (!config_.prefix_reuse) return {};
    const auto start = static_cast<std::size_t>(boundary_.num_known_blocks * config_.block_tokens);
    const std::span<const std::int32_t> rest = std::span(request.token_ids).subspan(start);
    const auto length = std::min(rest.size(), static_cast<std::size_t>(config_.block_tokens));
    return groups_[0].pool->NearestChild(boundary_.last_known, request.seed.low,
                                         rest.first(length));
}

// The head of a block that another prompt continues differently: copied when that beats computing
// it.
std::int32_t Scheduler::CopyPart(Resident& resident, const NearestBlock& nearest, StepPlan& plan) {
    const std::int32_t start = resident.progress.num_computed;
    const std::int32_t num_tokens =
        std::min(nearest.num_tokens, resident.request->num_tokens() - 1 - start);
    if (config_.min_copy_tokens == 0 || num_tokens < config_.min_copy_tokens || groups_.size() > 1)
        return 0;
    CacheGroup& group = groups_[0];
    std::optional<DeviceShared> source = group.pool->TryShare(nearest.block);
    if (!source) return 0;
    auto& run = std::get<BlockRun>(resident.holdings.runs[0]);
    TakeMissing(run, group, resident.slot.id(), config_.block_tokens, start + num_tokens, patches_);
    plan.copies.push_back(MakeCopy(*source, run.open.back(), num_tokens));
    if (!IsPlanted(Mutant::kCopySourceUnpinned)) {
        ledger_.Retire(ledger_.next(), std::move(*source));
    }
    resident.progress.num_computed = start + num_tokens;
    resident.progress.num_planned = start + num_tokens;
    return num_tokens;
}

// Once per request: a preempted one that comes back was counted when it came first.
void Scheduler::Account(Request& request, std::int32_t num_cached_tokens,
                        const NearestBlock& nearest) {
    if (request.num_cached_tokens) return;
    request.num_cached_tokens = num_cached_tokens;
    totals_.num_prompt_tokens += request.num_prompt_tokens;
    totals_.num_cached_tokens += num_cached_tokens;

    Explanation& explanation = request.explanation;
    const auto num_known = static_cast<std::size_t>(boundary_.num_known_blocks);
    explanation.num_cached_tokens = num_cached_tokens;
    explanation.first_divergent_token =
        std::min(boundary_.num_known_blocks * config_.block_tokens + nearest.num_tokens,
                 request.num_prompt_tokens);
    if (!config_.prefix_reuse) {
        explanation.cause = MissCause::kReuseOff;
    } else if (explanation.first_divergent_token == request.num_prompt_tokens) {
        explanation.cause = MissCause::kNone;
    } else if (num_known < request.chain.size() &&
               groups_[0].pool->WasEvicted(request.chain[num_known])) {
        explanation.cause = MissCause::kEvicted;
    } else if (num_known == 0 &&
               groups_[0].pool->HasForeignRoot(request.seed.low, request.token_ids)) {
        explanation.cause = MissCause::kSalt;
    } else {
        explanation.cause = MissCause::kNeverSeen;
    }
}

}  // namespace tokenlight::control
