// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bindings/control_types.h"

namespace nb = nanobind;

namespace tokenlight::bindings {
namespace {

using control::StepPlan;

template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;
using View2D = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<2>>;
using View3D = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<3>>;

// The view keeps the plan alive, the plan keeps its buffers.
template <typename T>
auto Column(std::vector<T> StepPlan::* column) {
    return [column](PlannedStep& step) {
        const std::vector<T>& values = (*step.plan).*column;
        return View<T>(values.data(), {values.size()});
    };
}

// Rows of a struct of int32s, seen as a matrix.
template <typename Row>
auto Rows(std::vector<Row> StepPlan::* rows) {
    return [rows](PlannedStep& step) {
        const std::vector<Row>& values = (*step.plan).*rows;
        return View2D(reinterpret_cast<const std::int32_t*>(values.data()),
                      {values.size(), sizeof(Row) / sizeof(std::int32_t)});
    };
}

View3D StateBlocks(PlannedStep& step) {
    const auto num_requests = static_cast<std::size_t>(step.plan->num_requests());
    const std::size_t num_groups =
        num_requests == 0 ? 0 : step.plan->state_blocks.size() / (2 * num_requests);
    return View3D(step.plan->state_blocks.data(), {num_requests, num_groups, 2});
}

View2D GroupTable(const control::Scheduler& scheduler, std::size_t group) {
    const control::BlockTable& table = scheduler.groups().at(group).table;
    return View2D(table.data(), {static_cast<std::size_t>(scheduler.config().max_num_requests),
                                 static_cast<std::size_t>(table.num_columns())});
}

}  // namespace

void BindPlan(nb::module_& m) {
    constexpr auto kView = nb::rv_policy::reference_internal;
    nb::class_<control::StepGuard>(m, "StepGuard",
                                   "The right to commit one step, once. Owned by its plan.")
        .def_prop_ro("step",
                     [](const control::StepGuard& guard) { return control::Raw(guard.step()); });

    nb::class_<PlannedStep>(
        m, "StepPlan",
        "What the runner executes next: R requests (decodes first, then prefill chunks), T tokens, "
        "S sampled rows. Run `copies`, then the forward. Each view is made when it is read: read "
        "once.")
        .def_prop_ro(
            "guard", [](PlannedStep& step) { return &step.guard; }, kView,
            "Hand it to commit. A plan that is dropped before stops the scheduler.")
        .def_prop_ro("num_requests",
                     [](const PlannedStep& step) { return step.plan->num_requests(); })
        .def_prop_ro("num_tokens", [](const PlannedStep& step) { return step.plan->num_tokens(); })
        .def_prop_ro("num_sampled",
                     [](const PlannedStep& step) { return step.plan->num_sampled(); })
        .def_prop_ro("request_ids", Column(&StepPlan::request_ids), kView, "int64[R]")
        .def_prop_ro("slots", Column(&StepPlan::slots), kView, "int32[R]: row in the block table")
        .def_prop_ro("token_ids", Column(&StepPlan::token_ids), kView,
                     "int32[T]; -1 (only with overlap): the last id sampled for this slot, still "
                     "on the device")
        .def_prop_ro("positions", Column(&StepPlan::positions), kView, "int32[T]")
        .def_prop_ro("query_starts", Column(&StepPlan::query_starts), kView, "int32[R + 1]")
        .def_prop_ro("kv_lens", Column(&StepPlan::kv_lens), kView,
                     "int32[R]: tokens of KV once this step has written its own")
        .def_prop_ro("sampled_rows", Column(&StepPlan::sampled_rows), kView,
                     "int32[S]: index into T")
        .def_prop_ro("sampled_requests", Column(&StepPlan::sampled_requests), kView,
                     "int32[S]: index into R")
        .def_prop_ro("state_blocks", StateBlocks, kView,
                     "int32[R, recurrent groups, 2]: the block read and the block written; reads "
                     "-1: from zero")
        .def_prop_ro("copies", Rows(&StepPlan::copies), kView,
                     "int32[C, 3]: from block, to block, tokens at their head; before the forward")
        .def_prop_ro("patches", Rows(&StepPlan::patches), kView,
                     "int32[P, 4]: group, slot, column, block; what changed in the block tables "
                     "since the last plan")
        .def_prop_ro(
            "block_table", [](PlannedStep& step) { return GroupTable(*step.scheduler, 0); }, kView,
            "int32[max_num_requests, max_blocks]: persistent, indexed by slot; only columns that "
            "hold a row's "
            "kv_lens are meaningful, and they stay as they are until its step is committed")
        .def(
            "group_table",
            [](PlannedStep& step, std::size_t group) { return GroupTable(*step.scheduler, group); },
            nb::arg("group"), kView, "As block_table, of another cache group.");

    nb::class_<control::CopyGuard>(m, "CopyGuard",
                                   "The right to say how one copy ended, once. Owned by its plan.");
    nb::class_<PlannedCopy>(
        m, "CopyPlan", "Whole blocks to copy between the device and the host; not part of a step.")
        .def_prop_ro(
            "guard", [](PlannedCopy& copy) { return &copy.guard; }, kView,
            "Hand it to commit_copy.")
        .def_prop_ro(
            "rows",
            [](PlannedCopy& copy) {
                return View2D(reinterpret_cast<const std::int32_t*>(copy.plan.rows.data()),
                              {copy.plan.rows.size(), 3});
            },
            kView,
            "int32[C, 3]: 1 for device to host or 0 for host to device, device block, host block");
}

}  // namespace tokenlight::bindings
