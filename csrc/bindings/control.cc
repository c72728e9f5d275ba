// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include "bindings/control_types.h"

NB_MODULE(_control, m) {
    m.doc() = "The scheduler in C++: convert, name, document; nothing is decided here.";
    // An interpreter that ends with a scheduler in a global is no fault worth a report on stderr.
    nanobind::set_leak_warnings(false);
    tokenlight::bindings::BindConfig(m);
    tokenlight::bindings::BindPlan(m);
    tokenlight::bindings::BindScheduler(m);
}
