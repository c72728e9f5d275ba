// SPDX-License-Identifier: Apache-2.0
#include "bindings/control_errors.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace tokenlight::bindings {
namespace {

using control::Fault;

[[noreturn]] void RaiseInvalidRequest(const std::string& message) {
    const nb::object error =
        nb::module_::import_("tokenlight.base.errors").attr("InvalidRequest")(message);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

[[noreturn]] void RaiseContextTooLong(std::size_t prompt_tokens, std::int32_t limit_tokens) {
    nb::dict numbers;
    numbers["prompt_tokens"] = prompt_tokens;
    numbers["limit_tokens"] = limit_tokens;
    const nb::object error =
        nb::module_::import_("tokenlight.base.errors").attr("ContextTooLong")(**numbers);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

}  // namespace

void RaiseControlError(const char* name, const std::string& message) {
    const nb::object error = nb::module_::import_("tokenlight.control.errors").attr(name)(message);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void RaiseSubmitFault(Fault fault, const control::Submission& submission,
                      const control::Scheduler& scheduler) {
    const std::string id = std::to_string(control::Raw(submission.id));
    const std::string limit = std::to_string(scheduler.max_request_tokens());
    const std::size_t num_prompt_tokens = submission.prompt_token_ids.size();
    switch (fault) {
        case Fault::kNone:
            return;
        case Fault::kDuplicateRequest:
            RaiseControlError(
                "DuplicateRequest",
                "request " + id +
                    " is already known and has not finished; give each an id of its own");
        case Fault::kEmptyPrompt:
            RaiseInvalidRequest("the prompt has no tokens; at least 1 is needed");
        case Fault::kNoOutput:
            RaiseInvalidRequest("max_new_tokens must be at least 1, got " +
                                std::to_string(submission.max_new_tokens));
        case Fault::kPromptTooLong:
            RaiseContextTooLong(num_prompt_tokens, scheduler.max_request_tokens());
        case Fault::kOutputTooLong:
            RaiseInvalidRequest(
                "a prompt of " + std::to_string(num_prompt_tokens) + " tokens and max_new_tokens " +
                std::to_string(submission.max_new_tokens) + " need more than this engine's " +
                limit + " tokens; lower max_new_tokens");
        default:
            RaiseStepFault(fault, scheduler);
    }
}

void RaiseStepFault(Fault fault, const control::Scheduler& scheduler) {
    const std::string depth = std::to_string(scheduler.config().overlap + 1);
    switch (fault) {
        case Fault::kNone:
            return;
        case Fault::kStepBroken:
            RaiseControlError("StepDropped",
                              "a guard was dropped before it was committed, so its blocks "
                              "can never be shown "
                              "to be unread; make a new scheduler");
        case Fault::kTooManySteps:
            RaiseControlError("TooManySteps",
                              depth + " steps are in flight, as many as the overlap of " +
                                  std::to_string(scheduler.config().overlap) +
                                  " allows; commit the oldest first");
        case Fault::kGuardCommitted:
            RaiseControlError(
                "StepAlreadyCommitted",
                "this guard was committed before; a step or a copy is committed once");
        case Fault::kGuardForeign:
            RaiseControlError("ForeignGuard", "this guard belongs to another scheduler");
        case Fault::kGuardOutOfOrder:
            RaiseControlError(
                "StepOutOfOrder",
                "steps are committed in the order of their plans; an older one is open");
        case Fault::kResultMalformed:
            RaiseControlError("MalformedResult",
                              "a result has one id per sampled row, and between 1 and all of a "
                              "row's ids accepted");
        case Fault::kDraftMismatch:
            RaiseControlError(
                "MalformedResult",
                "an accepted draft is not the token sampled in its place; its KV would be wrong");
        default:
            RaiseControlError("ControlError",
                              "unexpected fault " + std::to_string(static_cast<int>(fault)));
    }
}

}  // namespace tokenlight::bindings
