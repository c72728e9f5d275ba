// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa.h"

#include <atomic>
#include <stdexcept>

namespace tokenlight::cpu {
namespace {

Isa Detect() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx2 && avx512) return Isa::kAvx512;
    if (avx2) return Isa::kAvx2;
#endif
    return Isa::kPortable;
}

bool DetectAddsBesideProducts() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

std::atomic<Isa> g_active = Detect();
std::atomic<bool> g_adds_beside_products = DetectAddsBesideProducts();

}  // namespace

Isa ActiveIsa() { return g_active.load(std::memory_order_relaxed); }

Isa BestIsa() {
    static const Isa best = Detect();
    return best;
}

bool AddsBesideProducts() { return g_adds_beside_products.load(std::memory_order_relaxed); }

void SetAddsBesideProducts(bool adds) { g_adds_beside_products = adds; }

void SetActiveIsa(Isa isa) {
    if (isa > BestIsa()) {
        throw std::invalid_argument(std::string("this machine does not run ") + IsaName(isa) +
                                    "; its best is " + IsaName(BestIsa()));
    }
    g_active = isa;
}

const char* IsaName(Isa isa) {
    switch (isa) {
        case Isa::kPortable:
            return "portable";
        case Isa::kAvx2:
            return "avx2";
        case Isa::kAvx512:
            return "avx512";
    }
    return "unknown";
}

}  // namespace tokenlight::cpu
