// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "bindings/control_types.h"
#include "control/holdings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tokenlight::bindings {
namespace {

using control::Config;
using control::GroupConfig;
using control::GroupKind;

[[noreturn]] void RaiseConfigError(const std::string& message) {
    const nb::object error =
        nb::module_::import_("tokenlight.base.errors").attr("ConfigError")(message);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void RequireAtLeast(std::int32_t value, std::int32_t least, const char* name) {
    if (value >= least) return;
    RaiseConfigError(std::string(name) + " must be at least " + std::to_string(least) + ", got " +
                     std::to_string(value));
}

GroupKind ParseKind(const std::string& kind) {
    if (kind == "full") return GroupKind::kFull;
    if (kind == "sliding_window") return GroupKind::kSlidingWindow;
    if (kind == "recurrent") return GroupKind::kRecurrent;
    RaiseConfigError("a cache group's kind is full, sliding_window or recurrent, got '" + kind +
                     "'");
}

const char* NameOf(GroupKind kind) {
    switch (kind) {
        case GroupKind::kFull:
            return "full";
        case GroupKind::kSlidingWindow:
            return "sliding_window";
        case GroupKind::kRecurrent:
            return "recurrent";
    }
    __builtin_unreachable();
}

void CheckGroup(const GroupConfig& group, const Config& config) {
    RequireAtLeast(group.num_blocks, 1, "num_blocks");
    if (group.kind == GroupKind::kFull) return;
    const std::int32_t needed = control::MaxLiveBlocks(group, config, config.max_model_tokens);
    if (group.num_blocks < needed) {
        RaiseConfigError("a cache group has " + std::to_string(group.num_blocks) +
                         " blocks, but one request may hold " + std::to_string(needed) +
                         " of them at once; give it at least that many");
    }
}

void CheckConfig(const Config& config) {
    RequireAtLeast(config.block_tokens, 1, "block_tokens");
    RequireAtLeast(config.max_num_requests, 1, "max_num_requests");
    RequireAtLeast(config.max_model_tokens, 2, "max_model_tokens");
    RequireAtLeast(config.max_step_tokens, config.max_num_requests, "max_step_tokens");
    RequireAtLeast(config.overlap, 0, "overlap");
    RequireAtLeast(config.output_margin_tokens, 0, "output_margin_tokens");
    RequireAtLeast(config.max_preemptions, 0, "max_preemptions");
    RequireAtLeast(config.min_copy_tokens, 0, "min_copy_tokens");
    RequireAtLeast(config.max_events, 0, "max_events");
    RequireAtLeast(config.num_host_blocks, 0, "num_host_blocks");
    for (const GroupConfig& group : config.groups) CheckGroup(group, config);
}

}  // namespace

void BindConfig(nb::module_& m) {
    nb::class_<GroupConfig>(m, "CacheGroup",
                            "Layers that keep their KV alike: full, sliding_window or recurrent.")
        .def(
            "__init__",
            [](GroupConfig* self, const std::string& kind, std::int32_t num_blocks,
               std::int32_t window_tokens) {
                new (self) GroupConfig{ParseKind(kind), num_blocks, window_tokens};
                if (self->kind == GroupKind::kSlidingWindow)
                    RequireAtLeast(window_tokens, 1, "window_tokens");
            },
            "kind"_a, nb::kw_only(), "num_blocks"_a, "window_tokens"_a = 0)
        .def_prop_ro("kind", [](const GroupConfig& group) { return NameOf(group.kind); })
        .def_ro("num_blocks", &GroupConfig::num_blocks)
        .def_ro("window_tokens", &GroupConfig::window_tokens);

    nb::class_<Config>(m, "SchedulerConfig", "Sizes and depths that a scheduler is made with.")
        .def(
            "__init__",
            [](Config* self, std::int32_t num_blocks, std::int32_t block_tokens,
               std::int32_t max_num_requests, std::int32_t max_step_tokens,
               std::int32_t max_model_tokens, bool prefix_reuse, nb::bytes hash_key,
               std::int32_t overlap, std::int32_t output_margin_tokens,
               std::int32_t max_preemptions, std::int32_t min_copy_tokens, std::int32_t max_events,
               std::int32_t num_host_blocks, const std::vector<GroupConfig>& more_groups) {
                Config config{.groups = {{GroupKind::kFull, num_blocks, 0}},
                              .block_tokens = block_tokens,
                              .max_num_requests = max_num_requests,
                              .max_step_tokens = max_step_tokens,
                              .max_model_tokens = max_model_tokens,
                              .prefix_reuse = prefix_reuse,
                              .hash_key = {},
                              .overlap = overlap,
                              .output_margin_tokens = output_margin_tokens,
                              .max_preemptions = max_preemptions,
                              .min_copy_tokens = min_copy_tokens,
                              .max_events = max_events,
                              .num_host_blocks = num_host_blocks};
                config.groups.insert(config.groups.end(), more_groups.begin(), more_groups.end());
                if (hash_key.size() != config.hash_key.size()) {
                    RaiseConfigError("hash_key must have 16 bytes, got " +
                                     std::to_string(hash_key.size()));
                }
                std::copy_n(reinterpret_cast<const std::uint8_t*>(hash_key.c_str()),
                            hash_key.size(), config.hash_key.begin());
                CheckConfig(config);
                new (self) Config(config);
            },
            nb::kw_only(), "num_blocks"_a, "block_tokens"_a, "max_num_requests"_a,
            "max_step_tokens"_a, "max_model_tokens"_a, "prefix_reuse"_a = true, "hash_key"_a,
            "overlap"_a = 0, "output_margin_tokens"_a = 64, "max_preemptions"_a = 3,
            "min_copy_tokens"_a = 0, "max_events"_a = 0, "num_host_blocks"_a = 0,
            "more_groups"_a = std::vector<GroupConfig>{},
            "num_blocks is of the first group, full attention; a hybrid model names its other "
            "groups in "
            "more_groups. hash_key: 16 secret bytes, so that nobody can aim for a prefix "
            "collision.")
        .def_prop_ro("num_blocks", [](const Config& config) { return config.groups[0].num_blocks; })
        .def_prop_ro("more_groups",
                     [](const Config& config) {
                         return std::vector<GroupConfig>(config.groups.begin() + 1,
                                                         config.groups.end());
                     })
        .def_prop_ro("hash_key",
                     [](const Config& config) {
                         return nb::bytes(config.hash_key.data(), config.hash_key.size());
                     })
        .def_ro("output_margin_tokens", &Config::output_margin_tokens)
        .def_ro("max_preemptions", &Config::max_preemptions)
        .def_ro("min_copy_tokens", &Config::min_copy_tokens)
        .def_ro("max_events", &Config::max_events)
        .def_ro("num_host_blocks", &Config::num_host_blocks)
        .def_ro("block_tokens", &Config::block_tokens)
        .def_ro("max_num_requests", &Config::max_num_requests)
        .def_ro("max_step_tokens", &Config::max_step_tokens)
        .def_ro("max_model_tokens", &Config::max_model_tokens)
        .def_ro("prefix_reuse", &Config::prefix_reuse)
        .def_ro("overlap", &Config::overlap);
}

}  // namespace tokenlight::bindings
