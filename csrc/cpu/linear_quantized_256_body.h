// SPDX-License-Identifier: Apache-2.0

constexpr int kVectors = kBlockElements / 4;

// clang-format off
#include "cpu/linear_formats_256_body.h"
#include "cpu/linear_quantized_body.h"
#include "cpu/linear_panel_body.h"
// clang-format on

inline void ProductQ2K(const LinearJob& job, Worker& worker) { RunPhase<Q2K>(job, worker); }
inline void ProductQ3K(const LinearJob& job, Worker& worker) { RunPhase<Q3K>(job, worker); }
inline void ProductQ4K(const LinearJob& job, Worker& worker) { RunPhase<Q4K>(job, worker); }
inline void ProductQ5K(const LinearJob& job, Worker& worker) { RunPhase<Q5K>(job, worker); }
inline void ProductQ6K(const LinearJob& job, Worker& worker) { RunPhase<Q6K>(job, worker); }
