// SPDX-License-Identifier: Apache-2.0
// clang-format off: a body needs its vectors before it, in this order.
//
// Compiles the file named by TL_BODY once per instruction set, each in a namespace of its own,
// where `Vec` is sixteen floats. No include guard: a kernel's .cc defines TL_BODY and includes this
// once.
//
// A body must not instantiate templates of the standard library: the linker would keep one copy of
// such a function, perhaps the one compiled for instructions that the machine lacks.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/half.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,prefer-vector-width=512")
#endif
namespace tokenlight::cpu::avx512 {
namespace {
#include "cpu/vec_avx512.h"
#include "cpu/vec_math.h"
#include TL_BODY
}  // namespace
}  // namespace tokenlight::cpu::avx512
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace tokenlight::cpu::avx2 {
namespace {
#include "cpu/vec_avx2.h"
#include "cpu/vec_math.h"
#include TL_BODY
}  // namespace
}  // namespace tokenlight::cpu::avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

// The instance of a body's function for this machine.
#define TL_DISPATCH(function)                                          \
    (ActiveIsa() == Isa::kAvx512 ? ::tokenlight::cpu::avx512::function \
     : ActiveIsa() == Isa::kAvx2 ? ::tokenlight::cpu::avx2::function   \
                                 : ::tokenlight::cpu::portable::function)
#else
#define TL_DISPATCH(function) (::tokenlight::cpu::portable::function)
#endif

namespace tokenlight::cpu::portable {
namespace {
#include "cpu/vec_portable.h"
#include "cpu/vec_math.h"
#include TL_BODY
}  // namespace
}  // namespace tokenlight::cpu::portable
