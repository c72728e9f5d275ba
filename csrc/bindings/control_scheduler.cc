// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>

#include "bindings/control_errors.h"
#include "bindings/control_types.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tokenlight::bindings {
namespace {

using control::Fault;
using control::Scheduler;
using DeltaList = nb::typed<nb::list, RequestDelta>;
using EventList = nb::typed<nb::list, control::KvEvent>;
using TokenIds = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::int32_t> Ids(const TokenIds& array) { return {array.data(), array.size()}; }

const char* NameOf(control::FinishReason reason) {
    switch (reason) {
        case control::FinishReason::kStop:
            return "stop";
        case control::FinishReason::kLength:
            return "length";
        case control::FinishReason::kAbort:
            return "abort";
        case control::FinishReason::kDeadline:
            return "deadline";
    }
    __builtin_unreachable();
}

const char* NameOf(control::MissCause cause) {
    switch (cause) {
        case control::MissCause::kNone:
            return "none";
        case control::MissCause::kNeverSeen:
            return "never_seen";
        case control::MissCause::kEvicted:
            return "evicted";
        case control::MissCause::kSalt:
            return "salt";
        case control::MissCause::kReuseOff:
            return "reuse_off";
        case control::MissCause::kNotAdmitted:
            return "not_admitted";
    }
    __builtin_unreachable();
}

DeltaList TakeDeltas(control::DeltaBatch& batch) {
    nb::list list;
    for (const control::Delta& delta : batch.deltas) {
        const auto first = batch.token_ids.begin() + delta.first_token;
        list.append(RequestDelta{
            .id = control::Raw(delta.id),
            .token_ids = {first, first + delta.num_tokens},
            .finish_reason = delta.finish_reason ? NameOf(*delta.finish_reason) : nullptr,
            .num_cached_tokens = delta.num_cached_tokens,
            .num_sampled_tokens = delta.num_sampled_tokens});
    }
    batch.deltas.clear();
    batch.token_ids.clear();
    return nb::borrow<DeltaList>(list);
}

void Submit(SchedulerFace& face, std::int64_t id, const TokenIds& prompt_token_ids,
            std::int32_t max_new_tokens, const std::optional<TokenIds>& stop_token_ids,
            std::int32_t priority, std::optional<std::int64_t> deadline_us,
            const nb::bytes& cache_salt, std::int64_t adapter_id) {
    const control::Submission submission{
        .id = control::RequestId{id},
        .prompt_token_ids = Ids(prompt_token_ids),
        .max_new_tokens = max_new_tokens,
        .stop_token_ids = stop_token_ids ? Ids(*stop_token_ids) : std::span<const std::int32_t>{},
        .priority = priority,
        .deadline_us = deadline_us.value_or(control::kNoDeadline),
        .cache_salt = {reinterpret_cast<const std::uint8_t*>(cache_salt.c_str()),
                       cache_salt.size()},
        .adapter_id = adapter_id};
    RaiseSubmitFault(face.core().Submit(submission), submission, face.core());
}

std::optional<PlannedStep> Plan(SchedulerFace& face, std::int64_t now_us) {
    Scheduler& core = face.core();
    RaiseStepFault(core.CheckPlan(), core);
    std::shared_ptr<control::StepPlan> plan = face.IdlePlan();
    control::StepGuard guard = core.Plan(now_us, *plan);
    if (!guard) return std::nullopt;
    return PlannedStep{std::move(plan), &core, std::move(guard)};
}

DeltaList Commit(SchedulerFace& face, control::StepGuard& guard, const TokenIds& sampled_token_ids,
                 const std::optional<TokenIds>& num_accepted) {
    Scheduler& core = face.core();
    const control::StepResult result{
        .sampled_token_ids = Ids(sampled_token_ids),
        .num_accepted = num_accepted ? Ids(*num_accepted) : std::span<const std::int32_t>{}};
    RaiseStepFault(core.CheckCommit(guard, result), core);
    core.Commit(std::move(guard), result, face.deltas());
    return TakeDeltas(face.deltas());
}

std::optional<PlannedCopy> PlanCopies(SchedulerFace& face) {
    Scheduler& core = face.core();
    if (core.is_broken()) RaiseStepFault(Fault::kStepBroken, core);
    control::CopyPlan plan;
    control::CopyGuard guard = core.PlanCopies(plan);
    if (!guard) return std::nullopt;
    return PlannedCopy{std::move(plan), std::move(guard)};
}

void CommitCopy(SchedulerFace& face, control::CopyGuard& guard, bool has_succeeded) {
    Scheduler& core = face.core();
    RaiseStepFault(core.CheckCopy(guard), core);
    core.Commit(std::move(guard), has_succeeded);
}

EventList Events(SchedulerFace& face, std::int64_t from_sequence) {
    const control::EventLog& log = face.core().events();
    if (from_sequence < log.oldest_sequence()) {
        RaiseControlError("EventsLost",
                          "events before " + std::to_string(log.oldest_sequence()) +
                              " are no longer kept, and " + std::to_string(from_sequence) +
                              " was asked for; start again from an empty view of the cache");
    }
    nb::list list;
    for (std::int64_t at = from_sequence; at < log.next_sequence(); ++at) list.append(log.at(at));
    return nb::borrow<EventList>(list);
}

nb::bytes KeyBytes(const control::Hash128& key) { return nb::bytes(&key, sizeof key); }

void BindResults(nb::module_& m) {
    nb::class_<RequestDelta>(m, "Delta", "What one step did for one request.")
        .def_ro("id", &RequestDelta::id)
        .def_ro("token_ids", &RequestDelta::token_ids, "New tokens, without the stop token.")
        .def_prop_ro(
            "finish_reason",
            [](const RequestDelta& delta) -> std::optional<nb::str> {
                if (delta.finish_reason == nullptr) return std::nullopt;
                return nb::str(delta.finish_reason);
            },
            "stop, length, deadline, or None while it runs.")
        .def_ro("num_cached_tokens", &RequestDelta::num_cached_tokens,
                "Prompt tokens that the cache served.")
        .def_ro("num_sampled_tokens", &RequestDelta::num_sampled_tokens,
                "So far, the stop token included.");

    nb::class_<control::Stats>(
        m, "Stats", "Counts: totals since the start unless they say running, waiting or free.")
        .def_ro("num_running", &control::Stats::num_running)
        .def_ro("num_waiting", &control::Stats::num_waiting)
        .def_ro("num_free_blocks", &control::Stats::num_free_blocks, "Cached ones included.")
        .def_ro("num_blocks", &control::Stats::num_blocks)
        .def_ro("num_cached_blocks", &control::Stats::num_cached_blocks,
                "Free blocks whose contents can still serve a prefix.")
        .def_ro("num_free_host_blocks", &control::Stats::num_free_host_blocks,
                "Cached ones included.")
        .def_ro("num_host_blocks", &control::Stats::num_host_blocks)
        .def_ro("num_steps_in_flight", &control::Stats::num_steps_in_flight)
        .def_ro("num_prompt_tokens", &control::Stats::num_prompt_tokens)
        .def_ro("num_cached_tokens", &control::Stats::num_cached_tokens)
        .def_ro("num_sampled_tokens", &control::Stats::num_sampled_tokens)
        .def_ro("num_preemptions", &control::Stats::num_preemptions)
        .def_ro("num_steps", &control::Stats::num_steps);

    nb::class_<control::Explanation>(m, "Explanation",
                                     "Why a prompt was served from the cache as far as it was.")
        .def_ro("num_prompt_tokens", &control::Explanation::num_prompt_tokens)
        .def_ro("num_cached_tokens", &control::Explanation::num_cached_tokens)
        .def_ro("first_divergent_token", &control::Explanation::first_divergent_token,
                "Offset of the first token that is not known to follow; num_prompt_tokens when all "
                "are.")
        .def_prop_ro(
            "cause",
            [](const control::Explanation& explanation) { return NameOf(explanation.cause); },
            "none, never_seen, evicted, salt, reuse_off or not_admitted.")
        .def_ro("num_preemptions", &control::Explanation::num_preemptions);

    nb::class_<control::KvEvent>(m, "KvEvent", "One change of what a prefix could be served from.")
        .def_ro("sequence", &control::KvEvent::sequence)
        .def_prop_ro("kind",
                     [](const control::KvEvent& event) {
                         return event.kind == control::KvEventKind::kStored ? "stored" : "evicted";
                     })
        .def_ro("group", &control::KvEvent::group)
        .def_ro("block", &control::KvEvent::block)
        .def_prop_ro("key", [](const control::KvEvent& event) { return KeyBytes(event.key); })
        .def_prop_ro("parent",
                     [](const control::KvEvent& event) { return KeyBytes(event.parent); });
}

}  // namespace

control::Scheduler& SchedulerFace::core() {
    if (std::this_thread::get_id() != owner_) {
        RaiseControlError("WrongThread",
                          "a scheduler is used by the thread that made it, and by no other");
    }
    return core_;
}

std::shared_ptr<control::StepPlan> SchedulerFace::IdlePlan() {
    for (const auto& plan : plans_) {
        if (plan.use_count() == 1) return plan;
    }
    plans_.push_back(std::make_shared<control::StepPlan>());
    return plans_.back();
}

void BindScheduler(nb::module_& m) {
    BindResults(m);
    nb::class_<SchedulerFace>(
        m, "Scheduler",
        "Decides what each step computes and who owns which block. The GIL is kept: a call is "
        "shorter than handing it over.")
        .def(nb::init<const control::Config&>(), "config"_a)
        .def("submit", Submit, "id"_a, "prompt_token_ids"_a.noconvert(), nb::kw_only(),
             "max_new_tokens"_a, "stop_token_ids"_a.noconvert() = nb::none(), "priority"_a = 0,
             "deadline_us"_a = nb::none(), "cache_salt"_a = nb::bytes("", 0), "adapter_id"_a = 0,
             "Take a request; its id is unique among unfinished ones. Lower priority runs first.")
        .def(
            "abort",
            [](SchedulerFace& face, std::int64_t id) {
                return face.core().Abort(control::RequestId{id});
            },
            "id"_a, "False when the request is unknown or has finished.")
        .def(
            "propose",
            [](SchedulerFace& face, std::int64_t id, const TokenIds& draft_token_ids) {
                face.core().Propose(control::RequestId{id}, Ids(draft_token_ids));
            },
            "id"_a, "draft_token_ids"_a.noconvert(),
            "Tokens that may follow, to be judged by the request's next step. Ignored while a step "
            "in flight samples for it.")
        .def("plan", Plan, "now_us"_a, nb::keep_alive<0, 1>(),
             "The next step, or None when there is nothing to plan now.")
        .def("commit", Commit, "guard"_a, "sampled_token_ids"_a.noconvert(),
             "num_accepted"_a.noconvert() = nb::none(),
             "A step is back: int32[S] ids, and per row that sampled how many of its ids stand "
             "(None: each its one).")
        .def("plan_copies", PlanCopies, nb::keep_alive<0, 1>(),
             "The next blocks to copy between device and host, or None. Several may be open at "
             "once.")
        .def("commit_copy", CommitCopy, "guard"_a, nb::kw_only(), "has_succeeded"_a,
             "A copy is over. One that failed, or took too long, only costs what it would have "
             "saved.")
        .def(
            "take_deltas",
            [](SchedulerFace& face) {
                face.core().TakeDeltas(face.deltas());
                return TakeDeltas(face.deltas());
            },
            "What ended without a step (past its deadline); commit returns these as well.")
        .def("stats", [](SchedulerFace& face) { return face.core().stats(); })
        .def(
            "explain",
            [](SchedulerFace& face, std::int64_t id) {
                return face.core().Explain(control::RequestId{id});
            },
            "id"_a,
            "Of an unfinished or recently finished request; None when it is not known any more.")
        .def(
            "num_cached_tokens",
            [](SchedulerFace& face, const TokenIds& prompt_token_ids, const nb::bytes& cache_salt,
               std::int64_t adapter_id) {
                const auto* salt = reinterpret_cast<const std::uint8_t*>(cache_salt.c_str());
                return face.core().NumCachedTokens(Ids(prompt_token_ids), {salt, cache_salt.size()},
                                                   adapter_id);
            },
            "prompt_token_ids"_a.noconvert(), nb::kw_only(), "cache_salt"_a = nb::bytes("", 0),
            "adapter_id"_a = 0,
            "What the cache would serve of a prompt if it were submitted and admitted now.")
        .def("events", Events, "from_sequence"_a,
             "Changes of the prefix cache, numbered without gaps from 0.")
        .def_prop_ro(
            "max_request_tokens",
            [](SchedulerFace& face) { return face.core().max_request_tokens(); },
            "Longest prompt and output together.");
}

}  // namespace tokenlight::bindings
