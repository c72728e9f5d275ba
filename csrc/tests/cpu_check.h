// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cpu/isa.h"

namespace tokenlight::cpu {

// Buffers of exactly the length that a kernel may touch, so that the address sanitizer sees one
// element more.
inline std::vector<float> RandomFloats(std::size_t count, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(engine);
    return values;
}

inline void CheckClose(double got, double want, double tolerance, const char* what,
                       std::size_t at) {
    if (std::fabs(got - want) <= tolerance * (1.0 + std::fabs(want))) return;
    std::fprintf(stderr, "%s on %s: element %zu is %g, not %g\n", what, IsaName(ActiveIsa()), at,
                 got, want);
    std::abort();
}

inline void CheckTrue(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "%s does not hold on %s\n", what, IsaName(ActiveIsa()));
    std::abort();
}

// Runs a test once per instruction set of this machine.
template <class Test>
void OnEachIsa(Test test) {
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
        if (isa > BestIsa()) continue;
        SetActiveIsa(isa);
        test();
    }
    SetActiveIsa(BestIsa());
}

}  // namespace tokenlight::cpu
