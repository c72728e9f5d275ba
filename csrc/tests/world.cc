// SPDX-License-Identifier: Apache-2.0
#include "tests/world.h"

#include <fstream>
#include <sstream>

namespace tokenlight::control {
namespace {

constexpr std::int64_t kLate = 1'000'000;
constexpr std::int64_t kDeadline = 1'000;

std::vector<std::string> Split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) {
        const std::size_t first = part.find_first_not_of(' ');
        const std::size_t last = part.find_last_not_of(' ');
        parts.push_back(first == std::string::npos ? "" : part.substr(first, last - first + 1));
    }
    return parts;
}

// "aabb>3@s!." : the prompt's tokens, most new tokens, a salt, a deadline, a stop token.
WorldRequest ParseRequest(const std::string& text) {
    WorldRequest request;
    const std::size_t arrow = text.find('>');
    for (std::size_t i = 0; i < arrow; ++i) request.prompt.push_back(text[i] - 'a');
    request.max_new_tokens = std::stoi(text.substr(arrow + 1));
    const std::size_t at = text.find('@');
    if (at != std::string::npos) request.salt = text.substr(at + 1, 1);
    request.has_deadline = text.find('!') != std::string::npos;
    request.has_stop = text.find('.') != std::string::npos;
    Answer(request);
    return request;
}

// "8" blocks of full attention, "6w3" of a window of 3 tokens, "4r" states.
GroupConfig ParseGroup(const std::string& text) {
    std::size_t end = 0;
    GroupConfig group{
        .kind = GroupKind::kFull, .num_blocks = std::stoi(text, &end), .window_tokens = 0};
    if (end < text.size() && text[end] == 'r') group.kind = GroupKind::kRecurrent;
    if (end < text.size() && text[end] == 'w') {
        group.kind = GroupKind::kSlidingWindow;
        group.window_tokens = std::stoi(text.substr(end + 1));
    }
    return group;
}

World ParseWorld(const std::vector<std::string>& cells) {
    World world;
    world.name = cells[1];
    world.config.overlap = std::stoi(cells[2]);
    for (const std::string& group : Split(cells[3], ' ')) {
        if (!group.empty()) world.config.groups.push_back(ParseGroup(group));
    }
    world.config.block_tokens = std::stoi(cells[4]);
    world.config.max_num_requests = std::stoi(cells[5]);
    world.config.max_step_tokens = std::stoi(cells[6]);
    world.config.output_margin_tokens = std::stoi(cells[7]);
    world.config.max_preemptions = std::stoi(cells[8]);
    world.config.max_model_tokens =
        world.config.groups[0].num_blocks * world.config.block_tokens + 1;
    for (const std::string& request : Split(cells[9], ' ')) {
        if (!request.empty()) world.requests.push_back(ParseRequest(request));
    }
    const std::string& may = cells[10];
    world.has_aborts = may.find("abort") != std::string::npos;
    world.has_expiry = may.find("expiry") != std::string::npos;
    world.has_drafts = may.find("drafts") != std::string::npos;
    world.config.min_copy_tokens = may.find("parts") != std::string::npos ? 1 : 0;
    const std::size_t host = may.find("host");
    if (host != std::string::npos) world.config.num_host_blocks = std::stoi(may.substr(host + 4));
    world.is_deep = may.find("deep") != std::string::npos;
    world.num_states = std::stoll(cells[11]);
    return world;
}

}  // namespace

std::vector<World> ReadWorlds(const std::string& path) {
    std::ifstream file(path);
    std::vector<World> worlds;
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string> cells = Split(line, '|');
        const bool is_row =
            cells.size() > 11 && cells[2].find_first_not_of("0123456789") == std::string::npos;
        if (is_row && !cells[2].empty()) worlds.push_back(ParseWorld(cells));
    }
    return worlds;
}

std::string NameOf(Action action) {
    static constexpr const char* kNames[] = {
        "submit",        "plan",          "plan-late",   "commit",  "abort",
        "propose-right", "propose-wrong", "plan-copies", "copy-ok", "copy-fail"};
    return std::string(kNames[static_cast<std::size_t>(action.kind)]) + " " +
           std::to_string(action.request);
}

Run::Run(const World& world)
    : world_(world),
      device_(std::make_unique<ShadowDevice>(world.config, world.requests)),
      told_(world.requests.size()),
      scheduler_(std::make_unique<Scheduler>(world.config)) {}

std::vector<Action> Run::Enabled() const {
    std::vector<Action> actions;
    if (!guards_.empty()) actions.push_back({ActionKind::kCommit});
    if (scheduler_->CheckPlan() == Fault::kNone) {
        actions.push_back({ActionKind::kPlan});
        if (world_.has_expiry && now_us_ < kLate) actions.push_back({ActionKind::kPlanLate});
    }
    if (world_.config.num_host_blocks > 0 && copy_guards_.size() < 2) {
        actions.push_back({ActionKind::kPlanCopies});
    }
    for (std::size_t i = 0; i < copy_guards_.size(); ++i) {
        actions.push_back({ActionKind::kCopyOk, static_cast<std::uint8_t>(i)});
        actions.push_back({ActionKind::kCopyFail, static_cast<std::uint8_t>(i)});
    }
    bool has_next = false;  // requests arrive in the order of the list
    for (std::size_t i = 0; i < told_.size(); ++i) {
        const auto index = static_cast<std::uint8_t>(i);
        if (!told_[i].is_submitted && !has_next) {
            actions.push_back({ActionKind::kSubmit, index});
            has_next = true;
        }
        if (!told_[i].is_submitted || told_[i].is_over) continue;
        if (world_.has_aborts) actions.push_back({ActionKind::kAbort, index});
        if (world_.has_drafts && !told_[i].was_proposed && !told_[i].tokens.empty()) {
            actions.push_back({ActionKind::kProposeRight, index});
            actions.push_back({ActionKind::kProposeWrong, index});
        }
    }
    return actions;
}

void Run::Apply(Action action) {
    switch (action.kind) {
        case ActionKind::kSubmit:
            return Submit(action.request);
        case ActionKind::kPlan:
            return Plan(now_us_);
        case ActionKind::kPlanLate:
            return Plan(kLate);
        case ActionKind::kCommit:
            return Commit();
        case ActionKind::kAbort:
            told_[action.request].is_over = true;
            if (!scheduler_->Abort(RequestId{action.request}))
                Complain("a running request cannot be aborted");
            return;
        case ActionKind::kProposeRight:
            return Propose(action.request, true);
        case ActionKind::kProposeWrong:
            return Propose(action.request, false);
        case ActionKind::kPlanCopies:
            static_cast<void>(PlanCopies());
            return;
        case ActionKind::kCopyOk:
            return CommitCopy(action.request, true);
        case ActionKind::kCopyFail:
            return CommitCopy(action.request, false);
    }
}

void Run::Submit(std::uint8_t index) {
    const WorldRequest& request = world_.requests[index];
    const std::vector<std::int32_t> stops(request.has_stop ? 1 : 0, request.answer.size() > 1
                                                                        ? request.answer[1]
                                                                        : request.answer[0]);
    const std::vector<std::uint8_t> salt(request.salt.begin(), request.salt.end());
    told_[index].is_submitted = true;
    const Fault fault =
        scheduler_->Submit({.id = RequestId{index},
                            .prompt_token_ids = request.prompt,
                            .max_new_tokens = request.max_new_tokens,
                            .stop_token_ids = stops,
                            .priority = 0,
                            .deadline_us = request.has_deadline ? kDeadline : kNoDeadline,
                            .cache_salt = salt,
                            .adapter_id = 0});
    if (fault != Fault::kNone) Complain("a request of the world is refused");
}

void Run::Plan(std::int64_t now_us) {
    now_us_ = now_us;
    auto guard = std::make_unique<StepGuard>(scheduler_->Plan(now_us, plan_));
    if (guard->is_live()) {
        guards_.push_back(std::move(guard));
        device_->Accept(plan_, *scheduler_);
        for (const std::int64_t id : plan_.request_ids)
            told_[static_cast<std::size_t>(id)].was_proposed = false;
    }
    DeltaBatch ended;
    scheduler_->TakeDeltas(ended);
    Hear(ended);
}

void Run::Commit() {
    const std::vector<std::int32_t> sampled = device_->RunOldest();
    const std::vector<std::int32_t> accepted = device_->Accepted(sampled);
    const StepResult result{sampled, accepted};
    if (scheduler_->CheckCommit(*guards_.front(), result) != Fault::kNone) {
        Complain("a right result is refused");
    }
    DeltaBatch batch;
    scheduler_->Commit(std::move(*guards_.front()), result, batch);
    guards_.erase(guards_.begin());
    device_->ForgetOldest();
    Hear(batch);
}

bool Run::PlanCopies() {
    CopyPlan plan;
    auto guard = std::make_unique<CopyGuard>(scheduler_->PlanCopies(plan));
    if (!guard->is_live()) return false;
    copy_guards_.push_back(std::move(guard));
    device_->AcceptCopy(plan);
    return true;
}

void Run::CommitCopy(std::size_t index, bool has_succeeded) {
    device_->RunCopy(index, has_succeeded);
    scheduler_->Commit(std::move(*copy_guards_[index]), has_succeeded);
    copy_guards_.erase(copy_guards_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Run::Propose(std::uint8_t index, bool is_right) {
    const WorldRequest& request = world_.requests[index];
    const std::size_t next = told_[index].tokens.size();
    told_[index].was_proposed = true;
    if (next >= request.answer.size()) return;
    std::vector<std::int32_t> drafts(request.answer.begin() + static_cast<std::ptrdiff_t>(next),
                                     request.answer.end());
    drafts.resize(std::min<std::size_t>(drafts.size(), 2));
    if (!is_right) drafts.back() = (drafts.back() + 1) % 3;
    scheduler_->Propose(RequestId{index}, drafts);
}

void Run::Hear(const DeltaBatch& batch) {
    for (const Delta& delta : batch.deltas) {
        const auto index = static_cast<std::size_t>(Raw(delta.id));
        Told& told = told_[index];
        if (told.is_over) Complain("a request that is over is told more");
        const auto first = batch.token_ids.begin() + delta.first_token;
        told.tokens.insert(told.tokens.end(), first, first + delta.num_tokens);
        const std::vector<std::int32_t>& answer = world_.requests[index].answer;
        if (told.tokens.size() > answer.size() ||
            !std::equal(told.tokens.begin(), told.tokens.end(), answer.begin())) {
            Complain("request " + std::to_string(index) +
                     " is told another text than it has alone");
        }
        told.is_over = delta.finish_reason.has_value();
    }
}

void Run::Finish() {
    for (int i = 0; i < 200 && complaint_.empty(); ++i) {
        bool has_moved = false;
        if (scheduler_->CheckPlan() == Fault::kNone) {
            const std::size_t num_open = guards_.size();
            Plan(now_us_);
            has_moved = guards_.size() > num_open;
        }
        while (PlanCopies()) has_moved = true;
        while (!copy_guards_.empty()) {
            has_moved = true;
            CommitCopy(copy_guards_.size() - 1, i % 2 == 0);
        }
        if (!has_moved && guards_.empty()) break;
        if (!guards_.empty()) Commit();
        if (complaint_.empty()) complaint_ = device_->complaint();
    }
    for (const Told& told : told_) {
        if (told.is_submitted && !told.is_over) Complain("a request never ends");
    }
    for (const CacheGroup& group : scheduler_->groups()) {
        if (group.pool->num_free() != group.pool->num_blocks())
            Complain("a block never comes home");
        if (group.pool->num_unpromised() != group.pool->num_blocks())
            Complain("a promise is never returned");
    }
}

}  // namespace tokenlight::control
