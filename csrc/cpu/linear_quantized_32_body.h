// SPDX-License-Identifier: Apache-2.0

constexpr int kVectors = kBlockElements / 4;

// clang-format off
#include "cpu/linear_formats_32_body.h"
#include "cpu/linear_quantized_body.h"
// clang-format on

inline void ProductQ4_0(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q4_0>(a, worker); }
inline void ProductQ4_1(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q4_1>(a, worker); }
inline void ProductQ5_0(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q5_0>(a, worker); }
inline void ProductQ5_1(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q5_1>(a, worker); }
inline void ProductQ8_0(const LinearArgs& a, Worker& worker) { QuantizedProduct<Q8_0>(a, worker); }
inline void ProductIq4Nl(const LinearArgs& a, Worker& worker) {
    QuantizedProduct<Iq4Nl>(a, worker);
}
inline void ProductMxfp4(const LinearArgs& a, Worker& worker) {
    QuantizedProduct<Mxfp4>(a, worker);
}
