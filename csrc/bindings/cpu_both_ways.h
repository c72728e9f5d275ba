// SPDX-License-Identifier: Apache-2.0
// Kernels are bound twice: as functions, whose tensors are at hand, and as instructions of a
// compiled step, which finds them when it runs. What is written here lets one body be both:
//
//   template <class Way>
//   void ScaleCall(typename Way::Run& run, typename Way::Ref x, typename Way::Rows rows) { ... }
//   Define(module, "scale", ScaleCall<Now>, "x"_a, "rows"_a);
//   Define(program, "scale", ScaleCall<InStep>, "x"_a, "rows"_a);
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/cpu_call.h"
#include "cpu/step_program.h"

namespace tokenlight::cpu {

// A call whose tensors are at hand; asked as StepRun is.
class CallNow {
  public:
    template <class T>
    T* At(Address address) const {
        return reinterpret_cast<T*>(address);
    }
    std::int64_t Get(std::int64_t rows) const { return rows; }
    const PagedBatch& Batch(const PagedBatch& batch) const { return batch; }
    const StepRun::Attention& PlanAttention(const AttentionArgs& args, int num_workers) {
        return alone_.PlanAttention(args, num_workers);
    }

  private:
    std::vector<Field> none_;
    StepRun alone_{nullptr, none_, 0, 0};
};

struct Now {
    using Run = CallNow;
    using Ref = Address;
    using Rows = std::int64_t;
    using Paged = PagedBatch;

    // For as long as it lives; a step has let other Python threads run already.
    static Company Beside(std::int64_t work) { return Company(work); }
};

struct InStep {
    using Run = StepRun;
    using Ref = Place;
    using Rows = Count;
    using Paged = PagedPlaces;

    static Company Beside(std::int64_t) { return Company(0); }
};

template <class... Args, class... Extra>
void Define(nb::module_& m, const char* name, void (*call)(CallNow&, Args...),
            const Extra&... extra) {
    m.def(
        name,
        [call](Args... args) {
            CallNow now;
            call(now, args...);
        },
        extra...);
}

template <class... Args, class... Extra>
void Define(nb::class_<StepProgram>& program, const char* name, void (*call)(StepRun&, Args...),
            const Extra&... extra) {
    program.def(
        name,
        [call](StepProgram& self, Args... args) {
            self.Append([=](StepRun& run) { call(run, args...); });
        },
        extra...);
}

}  // namespace tokenlight::cpu
