// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "control/scheduler.h"

namespace tokenlight::bindings {

// Raises the class of this name from tokenlight.control.errors.
[[noreturn]] void RaiseControlError(const char* name, const std::string& message);

// Raises what Python calls this fault of a submission; does nothing on kNone.
void RaiseSubmitFault(control::Fault fault, const control::Submission& submission,
                      const control::Scheduler& scheduler);

// Raises what Python calls this fault of a step; does nothing on kNone.
void RaiseStepFault(control::Fault fault, const control::Scheduler& scheduler);

}  // namespace tokenlight::bindings
