// SPDX-License-Identifier: Apache-2.0
// Planning: every running request that can decode does; prompts fill what is left of the step's
// budget.
#include <algorithm>
#include <numeric>
#include <utility>

#include "control/mutants.h"
#include "control/policy.h"
#include "control/runs.h"
#include "control/scheduler.h"

namespace tokenlight::control {

Fault Scheduler::CheckPlan() const {
    if (is_broken()) return Fault::kStepBroken;
    if (ledger_.is_full()) return Fault::kTooManySteps;
    return Fault::kNone;
}

StepGuard Scheduler::Plan(std::int64_t now_us, StepPlan& plan) {
    plan.Clear();
    Expire(now_us);
    PlanRows(plan);
    // Everyone waits for room, and no step is out that could bring some: the newest gives way.
    while (plan.num_requests() == 0 && ledger_.num_in_flight() == 0 && loading_.size() == 0 &&
           copies_.is_idle()) {
        const std::optional<SlotId> newest = Newest(/*is_last_resort=*/true);
        if (!newest) break;
        PreemptSlot(*newest);
        PlanRows(plan);
    }
    if (plan.num_requests() == 0) return {};
    plan.patches.swap(patches_);
    patches_.clear();
    ++totals_.num_steps;
    return ledger_.Begin();
}

void Scheduler::PlanRows(StepPlan& plan) {
    PlanDecodes(plan);
    PlanPrefills(plan);
    while (plan.num_tokens() < config_.max_step_tokens) {
        const std::optional<SlotId> slot = TryAdmit(plan);
        if (!slot) return;
        if (prefilling_.Find(*slot) != nullptr) PlanChunk(*slot, plan);
    }
}

// Room first, rows after: making room may take a request out of the batch.
void Scheduler::PlanDecodes(StepPlan& plan) {
    std::int32_t draft_budget =
        config_.max_step_tokens - static_cast<std::int32_t>(decoding_.size());
    walk_ = decoding_.order();
    ready_.clear();
    for (const SlotId slot : walk_) {
        Decoding* decoding = decoding_.Find(slot);
        if (decoding == nullptr || !CanDecode(*decoding)) continue;
        const std::int32_t num_drafts = DraftsToPlan(*decoding, draft_budget);
        const std::int32_t start = decoding->resident.progress.num_planned;
        const Room room = MakeRoom(slot, start + 1 + num_drafts);
        // A draft is of one step: who proposes for the next counts on none being left.
        if (room == Room::kStalled) decoding->resident.request->draft_ids.clear();
        if (room != Room::kReady) continue;
        draft_budget -= num_drafts;
        ready_.push_back({slot, num_drafts});
    }
    for (const Candidate& ready : ready_) {
        Decoding* decoding = decoding_.Find(ready.slot);
        if (decoding == nullptr) continue;
        EmitRow(decoding->resident, 1 + ready.num_drafts, 1 + ready.num_drafts, plan);
    }
}

bool Scheduler::CanDecode(const Decoding& decoding) const {
    const Progress& progress = decoding.resident.progress;
    const Request& request = *decoding.resident.request;
    return progress.num_drafts == 0 &&
           request.num_sampled() + progress.num_sampling < request.max_new_tokens;
}

// Drafts need a model whose state can be taken back.
std::int32_t Scheduler::DraftsToPlan(const Decoding& decoding, std::int32_t budget) const {
    const Request& request = *decoding.resident.request;
    const bool has_state = std::ranges::any_of(groups_, [](const CacheGroup& group) {
        return group.config.kind == GroupKind::kRecurrent;
    });
    if (has_state) return 0;
    const std::int32_t room = request.max_new_tokens - request.num_sampled() - 1;
    return std::max(0,
                    std::min({static_cast<std::int32_t>(request.draft_ids.size()), room, budget}));
}

void Scheduler::PlanPrefills(StepPlan& plan) {
    walk_ = prefilling_.order();
    for (const SlotId slot : walk_) {
        if (plan.num_tokens() >= config_.max_step_tokens) return;
        if (prefilling_.Find(slot) != nullptr) PlanChunk(slot, plan);
    }
}

void Scheduler::PlanChunk(SlotId slot, StepPlan& plan) {
    Resident& resident = prefilling_.Find(slot)->resident;
    const bool has_state = std::ranges::any_of(groups_, [](const CacheGroup& group) {
        return group.config.kind == GroupKind::kRecurrent;
    });
    const std::int32_t num_tokens =
        ChunkTokens(config_, {.num_computed_tokens = resident.progress.num_planned,
                              .num_prompt_tokens = resident.request->num_tokens(),
                              .budget_tokens = config_.max_step_tokens - plan.num_tokens(),
                              .ends_at_blocks = has_state && config_.prefix_reuse});
    const std::int32_t end = resident.progress.num_planned + num_tokens;
    // Rows that are in the plan already must stay: a shortage here waits for the next step.
    if (!TryPromiseAll(resident, end)) return;
    const bool is_last = end == resident.request->num_tokens();
    EmitRow(resident, num_tokens, is_last ? 1 : 0, plan);
    if (is_last) decoding_.Put(Advance(prefilling_.Take(slot)));
}

bool Scheduler::TryPromiseAll(Resident& resident, std::int32_t upto_tokens) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (!TryPromise(resident.holdings.runs[g], groups_[g], config_.block_tokens, upto_tokens))
            return false;
    }
    return true;
}

Scheduler::Room Scheduler::MakeRoom(SlotId slot, std::int32_t upto_tokens) {
    while (true) {
        if (TryPromiseAll(*FindResident(slot), upto_tokens)) return Room::kReady;
        // Blocks are on their way home.
        if (ledger_.has_retired() || !copies_.is_idle()) return Room::kStalled;
        const std::optional<SlotId> victim = Newest(/*is_last_resort=*/false);
        if (!victim) return Room::kStalled;
        PreemptSlot(*victim);
        if (*victim == slot) return Room::kLeft;
    }
}

std::optional<SlotId> Scheduler::Newest(bool is_last_resort) const {
    std::optional<SlotId> newest;
    const auto consider = [&](SlotId slot) {
        const Request& request = *FindResident(slot)->request;
        if (!is_last_resort && !MayBePreempted(config_, request)) return;
        if (!newest || IsPreemptedBefore(request, *FindResident(*newest)->request)) newest = slot;
    };
    std::ranges::for_each(prefilling_.order(), consider);
    std::ranges::for_each(decoding_.order(), consider);
    return newest;
}

void Scheduler::PreemptSlot(SlotId slot) {
    Waiting waiting = prefilling_.Find(slot) != nullptr ? Preempt(prefilling_.Take(slot), ledger_)
                                                        : Preempt(decoding_.Take(slot), ledger_);
    Request& request = *waiting.request;
    ++request.num_preemptions;
    ++totals_.num_preemptions;
    request.draft_ids.clear();
    places_[request.id] = request.key;
    waiting_.emplace(request.key, std::move(waiting));
}

void Scheduler::EmitRow(Resident& resident, std::int32_t num_tokens, std::int32_t num_samples,
                        StepPlan& plan) {
    Progress& progress = resident.progress;
    Request& request = *resident.request;
    const std::int32_t end = progress.num_planned + num_tokens;
    std::vector<std::int32_t>& drafts = ledger_.next_drafts();
    ledger_.next_rows().push_back({.id = request.id,
                                   .slot = resident.slot.id(),
                                   .num_tokens = num_tokens,
                                   .num_samples = num_samples,
                                   .first_sample = plan.num_sampled(),
                                   .first_draft = static_cast<std::int32_t>(drafts.size())});
    HoldRow(resident, end, plan);
    EmitTokens(resident, num_tokens, plan);
    if (num_samples > 0) {
        drafts.insert(drafts.end(), request.draft_ids.begin(),
                      request.draft_ids.begin() + num_samples - 1);
        request.draft_ids.clear();
        progress.num_drafts = num_samples - 1;
        ++progress.num_sampling;
    }
    for (std::int32_t i = num_samples; i-- > 0;) {
        plan.sampled_rows.push_back(plan.num_tokens() - 1 - i);
        plan.sampled_requests.push_back(plan.num_requests());
    }
    plan.request_ids.push_back(Raw(request.id));
    plan.slots.push_back(Raw(resident.slot.id()));
    plan.query_starts.push_back(plan.num_tokens());
    plan.kv_lens.push_back(end);
    progress.num_planned = end;
    progress.last_step = ledger_.next();
}

void Scheduler::EmitTokens(const Resident& resident, std::int32_t num_tokens, StepPlan& plan) {
    const Request& request = *resident.request;
    const std::int32_t start = resident.progress.num_planned;
    const std::int32_t num_known = std::clamp(request.num_tokens() - start, 0, num_tokens);
    const auto known = request.token_ids.begin() + start;
    plan.token_ids.insert(plan.token_ids.end(), known, known + num_known);
    if (num_known == 0) {
        plan.token_ids.push_back(StepPlan::kOnDevice);
    } else {
        plan.token_ids.insert(plan.token_ids.end(), request.draft_ids.begin(),
                              request.draft_ids.begin() + (num_tokens - num_known));
    }
    plan.positions.resize(plan.token_ids.size());
    std::iota(plan.positions.end() - num_tokens, plan.positions.end(), start);
}

// Gives the row the blocks that it will write, out of what was promised.
void Scheduler::HoldRow(Resident& resident, std::int32_t upto_tokens, StepPlan& plan) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        GroupRun& run = resident.holdings.runs[g];
        if (auto* blocks = std::get_if<BlockRun>(&run)) {
            TakeMissing(*blocks, groups_[g], resident.slot.id(), config_.block_tokens, upto_tokens,
                        patches_);
            continue;
        }
        const bool is_sealed =
            config_.prefix_reuse &&
            (upto_tokens % config_.block_tokens == 0 ||
             (IsPlanted(Mutant::kStateOffBoundary) && upto_tokens > config_.block_tokens));
        const StateBlocks state =
            StepState(std::get<StateRun>(run), groups_[g], upto_tokens, is_sealed);
        plan.state_blocks.insert(plan.state_blocks.end(), {state.read, state.write});
    }
}

}  // namespace tokenlight::control
