// SPDX-License-Identifier: Apache-2.0
// How the bindings of the CPU kernels call them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "cpu/scratch.h"
#include "cpu/threads.h"

namespace tokenlight::cpu {

namespace nb = nanobind;
using namespace nb::literals;

using Address = std::uintptr_t;

template <class T>
T* At(Address address) {
    return reinterpret_cast<T*>(address);
}

// Work (about one per float touched or 16 products) below which one thread is faster than waking
// another.
constexpr std::int64_t kWorkPerThread = 16384;

// Work above which other Python threads should run meanwhile; handing the GIL over can cost
// milliseconds.
constexpr std::int64_t kWorkWithoutGil = 64 << 20;

// Lets other Python threads run for as long as it lives, if there is much work.
class Company {
  public:
    explicit Company(std::int64_t work) {
        if (work > kWorkWithoutGil) released_.emplace();
    }

  private:
    std::optional<nb::gil_scoped_release> released_;
};

inline std::int64_t MaxWorkers(std::int64_t work) { return work / kWorkPerThread + 1; }

// On as many threads as the work is worth.
template <class Args>
void Spread(void (*job)(const Args&, Worker&), const Args& args, std::int64_t work) {
    ThreadPool::Get().Run(job, args, MaxWorkers(work));
}

template <class Args>
void RunOn(void (*job)(const Args&, Worker&), const Args& args, std::int64_t work) {
    const Company company(work);
    Spread(job, args, work);
}

}  // namespace tokenlight::cpu
