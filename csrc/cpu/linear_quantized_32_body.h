// SPDX-License-Identifier: Apache-2.0

constexpr int kVectors = kBlockElements / 4;

// clang-format off
#include "cpu/linear_formats_32_body.h"
#include "cpu/linear_quantized_body.h"
#include "cpu/linear_panel_body.h"
// clang-format on

inline void ProductQ4_0(const LinearJob& job, Worker& worker) { RunPhase<Q4_0>(job, worker); }
inline void ProductQ4_1(const LinearJob& job, Worker& worker) { RunPhase<Q4_1>(job, worker); }
inline void ProductQ5_0(const LinearJob& job, Worker& worker) { RunPhase<Q5_0>(job, worker); }
inline void ProductQ5_1(const LinearJob& job, Worker& worker) { RunPhase<Q5_1>(job, worker); }
inline void ProductQ8_0(const LinearJob& job, Worker& worker) { RunPhase<Q8_0>(job, worker); }
inline void ProductIq4Nl(const LinearJob& job, Worker& worker) { RunPhase<Iq4Nl>(job, worker); }
inline void ProductMxfp4(const LinearJob& job, Worker& worker) { RunPhase<Mxfp4>(job, worker); }
