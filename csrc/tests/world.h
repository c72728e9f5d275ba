// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/scheduler.h"
#include "tests/shadow.h"

namespace tokenlight::control {

// A small world as worlds.md lists it: sizes, requests, and what may happen to them.
struct World {
    std::string name;
    bool is_deep = false;  // explored with --deep only
    Config config;
    std::vector<WorldRequest> requests;
    bool has_aborts = false;
    bool has_expiry = false;
    bool has_drafts = false;
    std::int64_t num_states = 0;  // as listed
};

std::vector<World> ReadWorlds(const std::string& path);

enum class ActionKind : std::uint8_t {
    kSubmit,
    kPlan,
    kPlanLate,
    kCommit,
    kAbort,
    kProposeRight,
    kProposeWrong,
    kPlanCopies,
    kCopyOk,  // of the open copy at `request`
    kCopyFail
};
struct Action {
    ActionKind kind;
    std::uint8_t request = 0;
};
std::string NameOf(Action action);

// One run of a world: the real scheduler, a shadow device, and what each request was told.
class Run {
  public:
    explicit Run(const World& world);

    [[nodiscard]] std::vector<Action> Enabled() const;
    void Apply(Action action);
    // Plans and commits until nothing moves; then every request must have ended and every block be
    // home.
    void Finish();
    // Checks what must hold in every state.
    void Check();
    // The state, modulo the names of blocks.
    [[nodiscard]] Hash128 Digest() const;
    [[nodiscard]] const std::string& complaint() const { return complaint_; }

  private:
    struct Told {
        bool is_submitted = false;
        bool is_over = false;
        bool was_proposed = false;  // since its last step
        std::vector<std::int32_t> tokens;
    };

    void Complain(const std::string& what) {
        if (complaint_.empty()) complaint_ = what;
    }
    void Submit(std::uint8_t index);
    void Plan(std::int64_t now_us);
    void Commit();
    void Propose(std::uint8_t index, bool is_right);
    [[nodiscard]] bool PlanCopies();
    void CommitCopy(std::size_t index, bool has_succeeded);
    void Hear(const DeltaBatch& batch);
    void CheckPools();
    void CheckPool(std::size_t group, const std::vector<std::int32_t>& num_owners,
                   std::int32_t promised);
    void CheckPublished(std::size_t group);
    void CheckInFlight();
    void CheckHost();

    const World& world_;
    std::unique_ptr<ShadowDevice> device_;
    std::vector<Told> told_;
    std::unique_ptr<Scheduler> scheduler_;
    std::vector<std::unique_ptr<StepGuard>>
        guards_;  // after the scheduler: no guard may outlive its ledger
    std::vector<std::unique_ptr<CopyGuard>> copy_guards_;
    StepPlan plan_;
    std::int64_t now_us_ = 0;
    std::string complaint_;
};

}  // namespace tokenlight::control
