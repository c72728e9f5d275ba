// SPDX-License-Identifier: Apache-2.0

constexpr int kVectors = kBlockElements / 4;

// clang-format off
#include "cpu/linear_formats_256_body.h"
#include "cpu/linear_quantized_body.h"
// clang-format on

inline void ProductQ2K(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q2K>(a, worker); }
inline void ProductQ3K(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q3K>(a, worker); }
inline void ProductQ4K(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q4K>(a, worker); }
inline void ProductQ5K(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q5K>(a, worker); }
inline void ProductQ6K(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q6K>(a, worker); }
