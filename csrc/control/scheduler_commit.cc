// SPDX-License-Identifier: Apache-2.0
// Commit: a step is back. Tokens are delivered, blocks published, and what only that step held goes
// home.
#include <algorithm>
#include <utility>

#include "control/mutants.h"
#include "control/runs.h"
#include "control/scheduler.h"

namespace tokenlight::control {

Fault Scheduler::CheckCommit(const StepGuard& guard, const StepResult& result) const {
    if (is_broken()) return Fault::kStepBroken;
    if (!guard.BelongsTo(ledger_))
        return guard.is_live() ? Fault::kGuardForeign : Fault::kGuardCommitted;
    if (guard.step() != ledger_.oldest()) return Fault::kGuardOutOfOrder;
    std::size_t num_samples = 0;
    std::size_t num_sampling_rows = 0;
    const bool takes_all = result.num_accepted.empty();
    for (const StepRow& row : ledger_.oldest_rows()) {
        if (row.num_samples == 0) continue;
        num_samples += static_cast<std::size_t>(row.num_samples);
        const std::size_t at = num_sampling_rows++;
        if (takes_all && row.num_samples > 1) return Fault::kResultMalformed;
        if (takes_all) continue;
        if (at >= result.num_accepted.size()) return Fault::kResultMalformed;
        const std::int32_t num_accepted = result.num_accepted[at];
        if (num_accepted < 1 || num_accepted > row.num_samples) return Fault::kResultMalformed;
        if (num_samples > result.sampled_token_ids.size()) return Fault::kResultMalformed;
        const auto sampled = result.sampled_token_ids.begin() + row.first_sample;
        const auto drafts = ledger_.oldest_drafts().begin() + row.first_draft;
        if (!std::equal(sampled, sampled + num_accepted - 1, drafts)) return Fault::kDraftMismatch;
    }
    if (num_samples != result.sampled_token_ids.size()) return Fault::kResultMalformed;
    if (!takes_all && num_sampling_rows != result.num_accepted.size())
        return Fault::kResultMalformed;
    return Fault::kNone;
}

void Scheduler::Commit(StepGuard&& guard, const StepResult& result, DeltaBatch& out) {
    TakeDeltas(out);
    const StepReceipt receipt = ledger_.Return(std::move(guard));
    std::size_t num_sampling_rows = 0;
    for (const StepRow& row : ledger_.RowsOf(receipt)) {
        std::int32_t num_accepted = row.num_samples;
        if (row.num_samples > 0 && !result.num_accepted.empty()) {
            num_accepted = result.num_accepted[num_sampling_rows++];
        }
        CommitRow(row,
                  result.sampled_token_ids.subspan(static_cast<std::size_t>(row.first_sample),
                                                   static_cast<std::size_t>(num_accepted)),
                  out);
    }
    ledger_.LandAll(receipt);
}

// `accepted` are the row's tokens that stand; the KV of the drafts behind them is void and will be
// overwritten.
void Scheduler::CommitRow(const StepRow& row, std::span<const std::int32_t> accepted,
                          DeltaBatch& out) {
    Resident* resident = FindResident(row.slot);
    if (resident == nullptr || resident->request->id != row.id) return;  // left while the step ran
    Request& request = *resident->request;
    Progress& progress = resident->progress;
    const std::int32_t num_rejected = row.num_samples - static_cast<std::int32_t>(accepted.size());
    progress.num_computed +=
        row.num_tokens - (IsPlanted(Mutant::kPublishRejected) ? 0 : num_rejected);
    progress.num_planned -= num_rejected;

    Delta delta;
    delta.id = row.id;
    delta.first_token = static_cast<std::int32_t>(out.token_ids.size());
    std::int32_t num_stop_tokens = 0;
    for (const std::int32_t token : accepted) {
        if (std::ranges::find(request.stop_token_ids, token) != request.stop_token_ids.end()) {
            delta.finish_reason = FinishReason::kStop;
            num_stop_tokens = 1;
            break;
        }
        request.token_ids.push_back(token);
        out.token_ids.push_back(token);
        ++delta.num_tokens;
        if (request.num_sampled() == request.max_new_tokens) {
            delta.finish_reason = FinishReason::kLength;
            break;
        }
    }
    Publish(*resident);
    if (row.num_samples == 0) return;
    --progress.num_sampling;
    progress.num_drafts = 0;
    totals_.num_sampled_tokens += delta.num_tokens + num_stop_tokens;
    delta.num_cached_tokens = request.num_cached_tokens.value_or(0);
    delta.num_sampled_tokens = request.num_sampled() + num_stop_tokens;
    out.deltas.push_back(delta);
    if (delta.finish_reason) {
        places_.erase(request.id);
        NoteFinished(Finish(decoding_.Take(row.slot), *delta.finish_reason, ledger_));
    }
}

void Scheduler::Publish(Resident& resident) {
    Request& request = *resident.request;
    const std::int32_t num_final = std::min(resident.progress.num_computed, request.num_tokens());
    if (config_.prefix_reuse) ExtendChain(request, num_final);
    const Publication what{.request = request,
                           .slot = resident.slot.id(),
                           .last_step = resident.progress.last_step,
                           .block_tokens = config_.block_tokens,
                           .num_tokens = num_final};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        GroupRun& run = resident.holdings.runs[g];
        if (auto* state = std::get_if<StateRun>(&run)) {
            PublishSnapshots(*state, groups_[g], what, ledger_);
            continue;
        }
        auto& blocks = std::get<BlockRun>(run);
        const std::size_t num_settled = blocks.settled.size();
        if (config_.prefix_reuse) PublishBlocks(blocks, groups_[g], what, ledger_, patches_);
        OfferToHost(request, num_settled, blocks.settled.size());
        if (blocks.settled.size() > num_settled && blockage_ && blockage_->wanted) {
            UnblockFor(request, num_settled, blocks.settled.size());
        }
        if (groups_[g].config.kind == GroupKind::kSlidingWindow) {
            DropDeadBlocks(blocks, groups_[g], config_.block_tokens, num_final);
        }
    }
}

// A host tier that is never asked for copies must not make this grow.
void Scheduler::OfferToHost(const Request& request, std::size_t from_column,
                            std::size_t to_column) {
    if (host_ == nullptr) return;
    const auto limit = static_cast<std::size_t>(host_->num_blocks());
    for (std::size_t column = from_column; column < to_column && unstored_.size() < limit;
         ++column) {
        unstored_.push_back(request.chain[column]);
    }
}

// The request that waits for room may need less of it now: what it lacked may be in the cache.
void Scheduler::UnblockFor(const Request& request, std::size_t from_column, std::size_t to_column) {
    const std::span<const Hash128> chain(request.chain);
    if (to_column > chain.size()) return;  // hollow columns: reuse is off
    const auto settled = chain.subspan(from_column, to_column - from_column);
    if (std::ranges::find(settled, *blockage_->wanted) != settled.end()) blockage_.reset();
}

}  // namespace tokenlight::control
