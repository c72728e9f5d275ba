// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "control/boundary.h"
#include "control/config.h"
#include "control/copies.h"
#include "control/events.h"
#include "control/holdings.h"
#include "control/ledger.h"
#include "control/plan.h"
#include "control/pool.h"
#include "control/request.h"
#include "control/slots.h"
#include "control/states.h"

namespace tokenlight::control {

// What a caller can do wrong. Nothing here throws: a fault is reported before anything has changed.
enum class Fault : std::int32_t {
    kNone,
    kDuplicateRequest,
    kEmptyPrompt,
    kNoOutput,
    kPromptTooLong,
    kOutputTooLong,
    kStepBroken,    // a guard was dropped: what its step names can never be shown to be unread
    kTooManySteps,  // more steps in flight than the overlap allows
    kGuardCommitted,
    kGuardForeign,
    kGuardOutOfOrder,
    kResultMalformed,  // not one id per sampled row, or not between 1 and all of a row's ids
                       // accepted
    kDraftMismatch,    // an accepted draft is not the token that was sampled in its place
};

struct Submission {
    RequestId id{};
    std::span<const std::int32_t> prompt_token_ids;
    std::int32_t max_new_tokens = 0;
    std::span<const std::int32_t> stop_token_ids;
    std::int32_t priority = 0;
    std::int64_t deadline_us = kNoDeadline;
    std::span<const std::uint8_t> cache_salt;
    std::int64_t adapter_id = 0;
};

struct StepResult {
    std::span<const std::int32_t> sampled_token_ids;
    // Per row that sampled: how many of its ids are accepted. Empty: all rows sampled one id each.
    std::span<const std::int32_t> num_accepted;
};

// What one step did for one request. Its tokens are a part of the batch's.
struct Delta {
    RequestId id{};
    std::int32_t first_token = 0;
    std::int32_t num_tokens = 0;
    std::int32_t num_cached_tokens = 0;
    std::int32_t num_sampled_tokens = 0;
    std::optional<FinishReason> finish_reason;
};
struct DeltaBatch {
    std::vector<Delta> deltas;
    std::vector<std::int32_t> token_ids;
};

struct Stats {
    std::int32_t num_running = 0;
    std::int32_t num_waiting = 0;
    std::int32_t num_free_blocks = 0;  // of group 0, cached ones included
    std::int32_t num_blocks = 0;
    std::int32_t num_cached_blocks = 0;
    std::int32_t num_free_host_blocks = 0;  // cached ones included
    std::int32_t num_host_blocks = 0;
    std::int64_t num_steps_in_flight = 0;
    std::int64_t num_prompt_tokens = 0;
    std::int64_t num_cached_tokens = 0;
    std::int64_t num_sampled_tokens = 0;
    std::int64_t num_preemptions = 0;
    std::int64_t num_steps = 0;
};

// Decides what each step computes and who owns which block. Deterministic: same calls, same plans.
// Not thread-safe. Nothing allocates while only decodes run.
class Scheduler {
  public:
    explicit Scheduler(const Config& config);
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    [[nodiscard]] Fault Submit(const Submission& submission);
    // False when the request is unknown or has finished.
    bool Abort(RequestId id);
    // Tokens that may follow, to be judged by the request's next step. Ignored while a step in
    // flight samples for it, and when they cannot be used; dropped when that step has no room.
    void Propose(RequestId id, std::span<const std::int32_t> draft_token_ids);

    // A guard was dropped: nothing can be planned or committed any more.
    [[nodiscard]] bool is_broken() const { return ledger_.is_broken() || copies_.is_broken(); }
    [[nodiscard]] Fault CheckPlan() const;
    // Empty guard: nothing to plan now. `plan` is overwritten.
    [[nodiscard]] TL_RETURNS_UNKNOWN StepGuard Plan(std::int64_t now_us, StepPlan& plan);

    [[nodiscard]] Fault CheckCommit(const StepGuard& guard, const StepResult& result) const;
    // Appends what the step did to `out`. CheckCommit must have found no fault.
    void Commit(TL_LIVE_PARAM StepGuard&& guard, const StepResult& result, DeltaBatch& out);
    // The next blocks to copy between the tiers; loads before stores. Empty guard: none.
    [[nodiscard]] TL_RETURNS_UNKNOWN CopyGuard PlanCopies(CopyPlan& plan);
    [[nodiscard]] Fault CheckCopy(const CopyGuard& guard) const;
    // A copy that failed costs what it would have saved, nothing else.
    void Commit(TL_LIVE_PARAM CopyGuard&& guard, bool has_succeeded);
    // Appends what ended without a step: requests past their deadline.
    void TakeDeltas(DeltaBatch& out);

    [[nodiscard]] Stats stats() const;
    [[nodiscard]] std::optional<Explanation> Explain(RequestId id) const;
    // What the cache would serve of a prompt now. Nothing is kept for it.
    [[nodiscard]] std::int32_t NumCachedTokens(std::span<const std::int32_t> prompt_token_ids,
                                               std::span<const std::uint8_t> cache_salt,
                                               std::int64_t adapter_id) const;
    [[nodiscard]] const EventLog& events() const { return events_; }
    [[nodiscard]] const Config& config() const { return config_; }
    [[nodiscard]] const std::vector<CacheGroup>& groups() const { return groups_; }
    // Longest prompt and output together that any request may have.
    [[nodiscard]] std::int32_t max_request_tokens() const;

  private:
    friend struct Inspector;

    enum class Room { kReady, kStalled, kLeft };
    struct Candidate {
        SlotId slot;
        std::int32_t num_drafts;
    };
    struct Deadline {
        std::int64_t us;
        QueueKey key;
        RequestId id;
    };
    // Why the first of the queue cannot be admitted, so that asking again costs nothing until it
    // can.
    struct Blockage {
        QueueKey key;
        std::vector<std::int32_t> num_needed;  // unpromised blocks, per group
        std::optional<Hash128> wanted;         // the first block that it would have to compute
    };
    using Place = std::variant<QueueKey, SlotId>;

    // scheduler_plan.cc
    void Expire(std::int64_t now_us);
    void PlanRows(StepPlan& plan);
    void PlanDecodes(StepPlan& plan);
    void PlanPrefills(StepPlan& plan);
    void PlanChunk(SlotId slot, StepPlan& plan);
    [[nodiscard]] std::int32_t DraftsToPlan(const Decoding& decoding, std::int32_t budget) const;
    [[nodiscard]] bool CanDecode(const Decoding& decoding) const;
    [[nodiscard]] bool TryPromiseAll(Resident& resident, std::int32_t upto_tokens);
    [[nodiscard]] Room MakeRoom(SlotId slot, std::int32_t upto_tokens);
    [[nodiscard]] std::optional<SlotId> Newest(bool is_last_resort) const;
    void PreemptSlot(SlotId slot);
    void EmitRow(Resident& resident, std::int32_t num_tokens, std::int32_t num_samples,
                 StepPlan& plan);
    void EmitTokens(const Resident& resident, std::int32_t num_tokens, StepPlan& plan);
    void HoldRow(Resident& resident, std::int32_t upto_tokens, StepPlan& plan);

    // scheduler_admit.cc
    [[nodiscard]] std::optional<SlotId> TryAdmit(StepPlan& plan);
    [[nodiscard]] bool IsStillBlocked(const QueueKey& key) const;
    [[nodiscard]] std::int32_t PromiseFor(const CacheGroup& group, const Request& request,
                                          std::span<const std::int32_t> found) const;
    [[nodiscard]] std::optional<Holdings> TryHold(const Request& request);
    [[nodiscard]] std::int32_t NumDroppedColumns(const GroupConfig& group) const;
    void NoteBlockage(const Request& request);
    void ShareFound(GroupRun& run, CacheGroup& group, std::span<const std::int32_t> found);
    [[nodiscard]] std::int32_t CopyPart(Resident& resident, const NearestBlock& nearest,
                                        StepPlan& plan);
    void Account(Request& request, std::int32_t num_cached_tokens, const NearestBlock& nearest);
    [[nodiscard]] NearestBlock FindNearest(const Request& request) const;

    // scheduler_commit.cc
    void CommitRow(const StepRow& row, std::span<const std::int32_t> accepted, DeltaBatch& out);
    void Publish(Resident& resident);
    void OfferToHost(const Request& request, std::size_t from_column, std::size_t to_column);
    void UnblockFor(const Request& request, std::size_t from_column, std::size_t to_column);
    void NoteFinished(const Finished& finished);

    // scheduler_copies.cc
    [[nodiscard]] bool TryLoad(SlotId slot);
    void PlanLoad(Loading& loading, CopyId copy, CopyPlan& plan);
    void PlanStores(OpenCopy& open, CopyPlan& plan);
    void FinishLoad(SlotId slot, const CopyReceipt& receipt, bool has_succeeded);

    Resident* FindResident(SlotId slot);
    [[nodiscard]] const Resident* FindResident(SlotId slot) const;
    [[nodiscard]] const Request* FindRequest(RequestId id) const;
    Finished EndRequest(RequestId id, FinishReason reason);
    void ExtendChain(Request& request, std::int32_t num_tokens) const;

    Config config_;
    ChainHasher hasher_;
    EventLog events_;
    EventLog host_events_;  // keeps none: what is on the host is the tier's own business
    // Pools before everything that holds their blocks: what is declared later is destroyed first.
    std::vector<std::unique_ptr<DevicePool>> pools_;
    std::vector<CacheGroup> groups_;
    std::unique_ptr<HostPool> host_;  // null: no host tier
    SlotPool slots_;
    StepLedger ledger_;
    CopyLedger copies_;

    std::map<QueueKey, Waiting> waiting_;
    SlotMap<Prefilling> prefilling_;
    SlotMap<Loading> loading_;
    SlotMap<Decoding> decoding_;
    std::unordered_map<RequestId, Place> places_;
    std::vector<Deadline> deadlines_;  // a heap, soonest first; may name requests that have ended
    std::optional<Blockage> blockage_;
    std::int64_t next_arrival_ = 0;

    std::vector<TablePatch> patches_;  // since the last plan
    std::vector<Hash128> unstored_;    // published since the host tier was last offered anything
    DeltaBatch ended_;                 // without a step, not yet handed out
    Stats totals_;

    struct Ended {
        RequestId id{};
        Explanation explanation;
    };
    std::vector<Ended> recent_;  // a ring
    std::int64_t num_ended_ = 0;

    // Scratch, so that planning does not allocate.
    std::vector<SlotId> walk_;
    std::vector<Candidate> ready_;
    Boundary boundary_;
};

}  // namespace tokenlight::control
