// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/plan.h"
#include "control/scheduler.h"

namespace tokenlight::control {

// A request of a world: what it asks for, and what it must be answered.
struct WorldRequest {
    std::vector<std::int32_t> prompt;
    std::int32_t max_new_tokens = 1;
    std::string salt;
    bool has_deadline = false;
    bool has_stop = false;             // its second token is a stop token
    std::vector<std::int32_t> answer;  // all tokens, as if it ran alone

    [[nodiscard]] std::uint64_t DigestStart() const;
};

std::uint64_t DigestAfter(std::uint64_t digest, std::int32_t token);
std::int32_t NextToken(std::uint64_t digest);
void Answer(WorldRequest& request);

// A device that stores, as the KV of a token, a digest of all that precedes it. It runs a step as
// late as it may: when the step is committed. What was freed, shared or rewritten too early is then
// read as someone else's.
class ShadowDevice {
  public:
    ShadowDevice(const Config& config, const std::vector<WorldRequest>& requests);

    struct Planned {
        StepPlan plan;
        std::vector<std::vector<std::int32_t>>
            tables;  // [group][row * columns + column], as planned
        std::set<std::pair<std::size_t, std::int32_t>> read;
        std::set<std::pair<std::size_t, std::int32_t>> written;
    };

    // Copies what the step was told; complains when it is told nonsense.
    void Accept(const StepPlan& plan, const Scheduler& scheduler);
    // Runs the oldest step: one id per sampled row.
    std::vector<std::int32_t> RunOldest();
    // How many ids of each row that sampled are right.
    [[nodiscard]] std::vector<std::int32_t> Accepted(
        const std::vector<std::int32_t>& sampled) const;
    void ForgetOldest() { steps_.pop_front(); }

    void AcceptCopy(const CopyPlan& plan) { copies_.push_back(plan); }
    // Copies at the last moment; one that fails leaves nothing usable behind.
    void RunCopy(std::size_t index, bool has_succeeded);
    [[nodiscard]] const std::deque<CopyPlan>& copies() const { return copies_; }
    [[nodiscard]] bool HostHolds(std::int32_t block, std::uint64_t start,
                                 const std::vector<std::int32_t>& tokens) const;

    [[nodiscard]] const std::deque<Planned>& steps() const { return steps_; }
    [[nodiscard]] const std::string& complaint() const { return complaint_; }
    // Does the block hold the KV (or the state) of `tokens`, whose last block this is?
    [[nodiscard]] bool Holds(std::size_t group, std::int32_t block, std::uint64_t start,
                             const std::vector<std::int32_t>& tokens) const;

  private:
    void Complain(const std::string& what) {
        if (complaint_.empty()) complaint_ = what;
    }
    void NoteUse(Planned& step, const Scheduler& scheduler);
    std::uint64_t ReadBefore(const Planned& step, std::size_t row, std::int32_t position);
    void Write(const Planned& step, std::size_t row, std::int32_t position, std::uint64_t digest);
    std::uint64_t& Cell(std::size_t group, std::int32_t block, std::int32_t offset);

    const Config& config_;
    const std::vector<WorldRequest>& requests_;
    std::vector<std::vector<std::uint64_t>> kv_;  // [group][block * block_tokens + offset]
    std::vector<std::uint64_t> host_;
    std::vector<std::int32_t> last_sampled_;
    std::deque<CopyPlan> copies_;
    std::deque<Planned> steps_;
    std::string complaint_;
};

}  // namespace tokenlight::control
