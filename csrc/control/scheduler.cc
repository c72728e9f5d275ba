// SPDX-License-Identifier: Apache-2.0
#include "control/scheduler.h"

#include <algorithm>
#include <utility>

#include "control/mutants.h"

namespace tokenlight::control {
namespace {

// Finished requests that can still be explained.
constexpr std::size_t kRecentRequests = 1024;

bool ExpiresLater(std::int64_t a, std::int64_t b) { return a > b; }

}  // namespace

Scheduler::Scheduler(const Config& config)
    : config_(config),
      hasher_(config.hash_key),
      events_(config.max_events),
      host_events_(0),
      slots_(config.max_num_requests),
      ledger_(config.overlap),
      prefilling_(config.max_num_requests),
      loading_(config.max_num_requests),
      decoding_(config.max_num_requests) {
    for (const GroupConfig& group : config.groups) {
        const auto index = static_cast<std::int32_t>(groups_.size());
        const bool is_full = group.kind == GroupKind::kFull;
        pools_.push_back(std::make_unique<DevicePool>(
            PoolConfig{.num_blocks = group.num_blocks,
                       .block_tokens = config.block_tokens,
                       .group = index,
                       .keeps_tokens = is_full && index == 0 && config.prefix_reuse},
            &events_));
        const bool has_columns = group.kind != GroupKind::kRecurrent;
        groups_.push_back({group, pools_.back().get(),
                           BlockTable(index, config.max_num_requests,
                                      has_columns ? config.max_blocks_per_request() : 0)});
    }
    if (config.num_host_blocks > 0) {
        host_ = std::make_unique<HostPool>(PoolConfig{.num_blocks = config.num_host_blocks,
                                                      .block_tokens = config.block_tokens,
                                                      .group = 0,
                                                      .keeps_tokens = false},
                                           &host_events_);
    }
}

std::int32_t Scheduler::max_request_tokens() const {
    std::int32_t limit = config_.max_model_tokens;
    for (const CacheGroup& group : groups_) {
        if (group.config.kind != GroupKind::kFull) continue;
        // The last token sampled needs no KV.
        limit = std::min<std::int64_t>(
            limit, std::int64_t{group.config.num_blocks} * config_.block_tokens + 1);
    }
    return limit;
}

Fault Scheduler::Submit(const Submission& submission) {
    const std::int64_t num_prompt_tokens =
        static_cast<std::int64_t>(submission.prompt_token_ids.size());
    const std::int64_t limit = max_request_tokens();
    if (is_broken()) return Fault::kStepBroken;
    if (places_.contains(submission.id)) return Fault::kDuplicateRequest;
    if (num_prompt_tokens == 0) return Fault::kEmptyPrompt;
    if (submission.max_new_tokens < 1) return Fault::kNoOutput;
    if (num_prompt_tokens >= limit) return Fault::kPromptTooLong;
    if (num_prompt_tokens + submission.max_new_tokens > limit) return Fault::kOutputTooLong;

    auto request = std::make_unique<Request>();
    request->id = submission.id;
    request->key = {submission.priority, next_arrival_++};
    request->num_prompt_tokens = static_cast<std::int32_t>(num_prompt_tokens);
    request->max_new_tokens = submission.max_new_tokens;
    request->deadline_us = submission.deadline_us;
    request->stop_token_ids.assign(submission.stop_token_ids.begin(),
                                   submission.stop_token_ids.end());
    request->token_ids.reserve(
        static_cast<std::size_t>(num_prompt_tokens + submission.max_new_tokens));
    request->token_ids.assign(submission.prompt_token_ids.begin(),
                              submission.prompt_token_ids.end());
    request->explanation.num_prompt_tokens = request->num_prompt_tokens;
    request->seed = IsPlanted(Mutant::kSaltIgnored)
                        ? Hash128{}
                        : hasher_.Seed(submission.cache_salt, submission.adapter_id);
    if (config_.prefix_reuse) {
        request->chain.reserve(
            static_cast<std::size_t>(request->max_kv_tokens() / config_.block_tokens));
        ExtendChain(*request, request->num_prompt_tokens);
    }
    if (request->deadline_us != kNoDeadline) {
        deadlines_.push_back({request->deadline_us, request->key, request->id});
        std::ranges::push_heap(deadlines_, ExpiresLater, &Deadline::us);
    }
    places_.emplace(request->id, request->key);
    const QueueKey key = request->key;
    waiting_.emplace(key, Waiting{std::move(request)});
    return Fault::kNone;
}

void Scheduler::ExtendChain(Request& request, std::int32_t num_tokens) const {
    const auto block_tokens = static_cast<std::size_t>(config_.block_tokens);
    const std::span<const std::int32_t> ids(request.token_ids);
    Hash128 parent = request.chain.empty() ? request.seed : request.chain.back();
    for (std::size_t end = (request.chain.size() + 1) * block_tokens;
         end <= static_cast<std::size_t>(num_tokens); end += block_tokens) {
        parent = hasher_.Next(parent, ids.subspan(end - block_tokens, block_tokens));
        request.chain.push_back(parent);
    }
}

bool Scheduler::Abort(RequestId id) {
    if (!places_.contains(id)) return false;
    NoteFinished(EndRequest(id, FinishReason::kAbort));
    return true;
}

void Scheduler::Expire(std::int64_t now_us) {
    while (!deadlines_.empty() && deadlines_.front().us <= now_us) {
        const Deadline due = deadlines_.front();
        std::ranges::pop_heap(deadlines_, ExpiresLater, &Deadline::us);
        deadlines_.pop_back();
        const Request* request = FindRequest(due.id);
        if (request == nullptr || request->key != due.key) continue;  // ended already
        const Finished finished = EndRequest(due.id, FinishReason::kDeadline);
        ended_.deltas.push_back(
            {.id = due.id,
             .num_cached_tokens = finished.request->num_cached_tokens.value_or(0),
             .num_sampled_tokens = finished.request->num_sampled(),
             .finish_reason = finished.reason});
        NoteFinished(finished);
    }
}

// Any state may come here: each container is named, and End names each state.
Finished Scheduler::EndRequest(RequestId id, FinishReason reason) {
    const End end{reason, ledger_, copies_};
    const Place place = places_.at(id);
    places_.erase(id);
    if (const auto* key = std::get_if<QueueKey>(&place)) {
        return end(std::move(waiting_.extract(*key).mapped()));
    }
    const SlotId slot = std::get<SlotId>(place);
    if (IsPlanted(Mutant::kLeakOnAbort)) {
        if (Resident* resident = FindResident(slot)) new Holdings(std::move(resident->holdings));
    }
    if (prefilling_.Find(slot) != nullptr) return end(prefilling_.Take(slot));
    if (loading_.Find(slot) != nullptr) return end(loading_.Take(slot));
    return end(decoding_.Take(slot));
}

void Scheduler::NoteFinished(const Finished& finished) {
    Explanation explanation = finished.request->explanation;
    explanation.num_preemptions = finished.request->num_preemptions;
    const Ended ended{finished.request->id, explanation};
    const auto at = static_cast<std::size_t>(num_ended_++) % kRecentRequests;
    if (at < recent_.size()) {
        recent_[at] = ended;
    } else {
        recent_.push_back(ended);
    }
}

void Scheduler::Propose(RequestId id, std::span<const std::int32_t> draft_token_ids) {
    const auto place = places_.find(id);
    if (place == places_.end() || !std::holds_alternative<SlotId>(place->second)) return;
    Decoding* decoding = decoding_.Find(std::get<SlotId>(place->second));
    if (decoding == nullptr) return;
    // What a step in flight samples comes before them.
    if (decoding->resident.progress.num_sampling > 0 && !IsPlanted(Mutant::kProposeInFlight))
        return;
    decoding->resident.request->draft_ids.assign(draft_token_ids.begin(), draft_token_ids.end());
}

void Scheduler::TakeDeltas(DeltaBatch& out) {
    out.deltas.insert(out.deltas.end(), ended_.deltas.begin(), ended_.deltas.end());
    ended_.deltas.clear();
}

Stats Scheduler::stats() const {
    Stats stats = totals_;
    stats.num_running =
        static_cast<std::int32_t>(prefilling_.size() + loading_.size() + decoding_.size());
    stats.num_waiting = static_cast<std::int32_t>(waiting_.size());
    stats.num_free_blocks = groups_[0].pool->num_free();
    stats.num_blocks = groups_[0].pool->num_blocks();
    stats.num_cached_blocks = groups_[0].pool->num_cached();
    if (host_ != nullptr) {
        stats.num_free_host_blocks = host_->num_free();
        stats.num_host_blocks = host_->num_blocks();
    }
    stats.num_steps_in_flight = ledger_.num_in_flight();
    return stats;
}

std::optional<Explanation> Scheduler::Explain(RequestId id) const {
    if (const Request* request = FindRequest(id)) {
        Explanation explanation = request->explanation;
        explanation.num_preemptions = request->num_preemptions;
        return explanation;
    }
    for (std::int64_t i = num_ended_;
         i-- > 0 && num_ended_ - i <= static_cast<std::int64_t>(recent_.size());) {
        const Ended& ended = recent_[static_cast<std::size_t>(i) % recent_.size()];
        if (ended.id == id) return ended.explanation;
    }
    return std::nullopt;
}

std::int32_t Scheduler::NumCachedTokens(std::span<const std::int32_t> prompt_token_ids,
                                        std::span<const std::uint8_t> cache_salt,
                                        std::int64_t adapter_id) const {
    if (!config_.prefix_reuse || prompt_token_ids.empty()) return 0;
    const auto block_tokens = static_cast<std::size_t>(config_.block_tokens);
    // Of the last token the logits are wanted, so it is always computed.
    std::vector<Hash128> chain((prompt_token_ids.size() - 1) / block_tokens);
    Hash128 parent = hasher_.Seed(cache_salt, adapter_id);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        parent = hasher_.Next(parent, prompt_token_ids.subspan(i * block_tokens, block_tokens));
        chain[i] = parent;
    }
    Boundary boundary;
    FindBoundary(groups_, config_.block_tokens, chain, boundary);
    return boundary.num_blocks * config_.block_tokens;
}

Resident* Scheduler::FindResident(SlotId slot) {
    return const_cast<Resident*>(std::as_const(*this).FindResident(slot));
}

const Resident* Scheduler::FindResident(SlotId slot) const {
    if (const Decoding* decoding = decoding_.Find(slot)) return &decoding->resident;
    if (const Prefilling* prefilling = prefilling_.Find(slot)) return &prefilling->resident;
    if (const Loading* loading = loading_.Find(slot)) return &loading->resident;
    return nullptr;
}

const Request* Scheduler::FindRequest(RequestId id) const {
    const auto place = places_.find(id);
    if (place == places_.end()) return nullptr;
    if (const auto* key = std::get_if<QueueKey>(&place->second))
        return waiting_.at(*key).request.get();
    return FindResident(std::get<SlotId>(place->second))->request.get();
}

}  // namespace tokenlight::control
