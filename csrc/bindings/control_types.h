// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/scheduler.h"

namespace tokenlight::bindings {

// A plan and the right to commit it. The buffers outlive the step as long as a view of them does.
struct PlannedStep {
    std::shared_ptr<control::StepPlan> plan;
    const control::Scheduler* scheduler;
    control::StepGuard guard;
};

// Blocks to copy and the right to say how it ended.
struct PlannedCopy {
    control::CopyPlan plan;
    control::CopyGuard guard;
};

// What one step did for one request, with its own tokens.
struct RequestDelta {
    std::int64_t id;
    std::vector<std::int32_t> token_ids;
    const char* finish_reason;  // nullptr while it runs
    std::int32_t num_cached_tokens;
    std::int32_t num_sampled_tokens;
};

// The scheduler, its thread, and the buffers of its plans.
class SchedulerFace {
  public:
    explicit SchedulerFace(const control::Config& config) : core_(config) {}

    // The scheduler, for the one thread that may use it.
    [[nodiscard]] control::Scheduler& core();
    // Buffers that nobody looks at any more, or new ones.
    [[nodiscard]] std::shared_ptr<control::StepPlan> IdlePlan();
    [[nodiscard]] control::DeltaBatch& deltas() { return deltas_; }

  private:
    control::Scheduler core_;
    std::thread::id owner_ = std::this_thread::get_id();
    std::vector<std::shared_ptr<control::StepPlan>> plans_;
    control::DeltaBatch deltas_;
};

void BindConfig(nanobind::module_& m);
void BindPlan(nanobind::module_& m);
void BindScheduler(nanobind::module_& m);

}  // namespace tokenlight::bindings
