// SPDX-License-Identifier: Apache-2.0

#include "cpu/rms_norm_body.h"

// f over the vectors of a row of `out`.
template <class F>
inline void EachVec(float* out, int width, F f) {
    const int full = width / kLanes * kLanes;
    for (int i = 0; i < full; i += kLanes) Store(out + i, f(i, kLanes));
    if (full < width) StoreN(out + full, f(full, width - full), width - full);
}
inline Vec LoadSome(const float* p, int count) {
    return count == kLanes ? Load(p) : LoadN(p, count);
}

inline void AddRow(float* out, const float* x, const float* y, int width) {
    EachVec(out, width, [=](int i, int n) { return Add(LoadSome(x + i, n), LoadSome(y + i, n)); });
}

inline void AddRows(const AddArgs& a, Worker& worker) {
    const int width = static_cast<int>(a.width);
    for (Piece rows = worker.TakeRows(a.num_rows); rows.first < rows.last;
         rows = worker.TakeRows(a.num_rows)) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            float* out = a.out + row * a.width;
            const float* x = a.x + row * a.x_stride;
            if (a.y != nullptr) {
                AddRow(out, x, a.y + row * a.y_stride, width);
            } else {
                const Vec factor = Set(a.factor);
                EachVec(out, width, [=](int i, int n) { return Mul(LoadSome(x + i, n), factor); });
            }
        }
    }
}

inline void AddRmsNormRows(const AddRmsNormArgs& a, Worker& worker) {
    const int width = static_cast<int>(a.width);
    for (Piece rows = worker.TakeRows(a.num_rows); rows.first < rows.last;
         rows = worker.TakeRows(a.num_rows)) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            float* sum = a.sum + row * a.width;
            AddRow(sum, a.x + row * a.x_stride, a.residual + row * a.residual_stride, width);
            RmsNormRow(a.out + row * a.width, sum, a.weight, width, a.eps);
        }
    }
}
