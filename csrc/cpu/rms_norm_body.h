// SPDX-License-Identifier: Apache-2.0

inline void RmsNormRow(float* out, const float* x, const float* weight, int width, float eps) {
    const int full = width / kLanes * kLanes;
    const int rest = width - full;
    Vec sum = Zero();
    for (int i = 0; i < full; i += kLanes) sum = Fma(Load(x + i), Load(x + i), sum);
    if (rest > 0) sum = Fma(LoadN(x + full, rest), LoadN(x + full, rest), sum);
    const float mean = SumLanes(sum) / static_cast<float>(width);
    const Vec scale = Set(1.0F / std::sqrt(mean + eps));
    for (int i = 0; i < full; i += kLanes) {
        Store(out + i, Mul(Mul(Load(x + i), scale), Load(weight + i)));
    }
    if (rest > 0) {
        StoreN(out + full, Mul(Mul(LoadN(x + full, rest), scale), LoadN(weight + full, rest)),
               rest);
    }
}

inline void RmsNormRows(const RmsNormArgs& a, Worker& worker) {
    const std::int64_t num_rows = a.num_outer * a.num_inner;
    for (Piece rows = worker.TakeRows(num_rows); rows.first < rows.last;
         rows = worker.TakeRows(num_rows)) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const float* x =
                a.x + row / a.num_inner * a.outer_stride + row % a.num_inner * a.inner_stride;
            RmsNormRow(a.out + row * a.width, x, a.weight, static_cast<int>(a.width), a.eps);
        }
    }
}
